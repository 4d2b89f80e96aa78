# The manual page skt(3) from skt.h: each declaration under its comment, so nothing is said twice.
# Variable: version.

function plain(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    # No line of text is a request.
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

function show(declaration) {
    printf ".TP\n.B %s\n%s\n", plain(declaration), plain(comment)
    comment = ""
}

function paragraph() {
    if (comment != "") print ".PP\n" plain(comment)
    comment = ""
}

BEGIN {
    printf ".TH SKT 3 \"\" \"skt-checkpoint %s\" \"Library calls\"\n", version
    print ".SH NAME\nskt \\- checkpoints in memory that survive the loss of ranks"
    print ".SH SYNOPSIS\n.nf\n.B #include <skt.h>\n.B cc $(pkg\\-config \\-\\-cflags \\-\\-libs skt\\-checkpoint)\n.fi"
    print ".SH DESCRIPTION"
}

# A comment, of one line or several.
/^ *\/\*/ { comment = ""; inside = 1 }
inside {
    line = $0
    is_last = line ~ /\*\//
    sub(/^ *\/?\*+ ?/, "", line)
    sub(/ *\*\/.*/, "", line)
    comment = comment (comment == "" || line == "" ? "" : " ") line
    if (is_last) {
        inside = 0
        if (!begun) { print plain(comment); comment = ""; begun = 1 }
    }
    next
}
/^$/ { paragraph() }
# The callbacks stand below their own text.
/^typedef struct skt_mover/ { show("typedef struct skt_mover"); members = 1; next }
/^}/ { members = 0 }
members {
    sub(/^ +/, "")
    printf ".br\n.B %s\n", plain($0)
    next
}
/^(enum|typedef struct)/ { print ".SS", /typedef/ ? "Options" : "Constants"; paragraph() }
/^#define SKT_REGIONS/ { print ".SS Limits"; show($2 " " $3) }
/^ +(SKT_[A-Z_]+|(int|double|size_t|const char) .*;)/ {
    declaration = $0
    sub(/^ +/, "", declaration)
    sub(/[,;]$/, "", declaration)
    show(declaration)
}
/^(int|const char)/ && !calls { print ".SS Calls"; calls = 1 }
/^(int|const char)/ { sub(/;$/, ""); show($0) }

END {
    print ".SH SEE ALSO\n.BR mpirun (1)"
}
