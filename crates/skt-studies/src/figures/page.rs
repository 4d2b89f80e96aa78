use std::fmt::Write;

use crate::plot::Figure;
use skt_host::shown::escape;

const STYLE: &str = "body{font-family:system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
padding:0 1rem;color:#222;line-height:1.45}figure{margin:2.5rem 0;border-top:1px solid #ddd;\
padding-top:1rem}img{max-width:100%;height:auto}figcaption{max-width:50rem}nav a{margin-right:1em;\
white-space:nowrap}code{background:#f3f3f3;padding:0 .2em}";

/// An HTML page for the SVG and CSV files of `figures` in the same folder.
pub(crate) fn index_page(figures: &[Figure]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>skt-studies</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Checkpointed runs: the theory in figures</h1>\n\
         <p>Written by <code>skt-studies all</code>. Each figure is there as SVG and, with the \
         same numbers, as CSV.</p>\n<nav>"
    );
    for figure in figures {
        let _ = write!(page, "<a href=\"#{0}\">{0}</a> ", figure.id);
    }
    page.push_str("</nav>\n");
    for figure in figures {
        let _ = write!(
            page,
            "<figure id=\"{id}\">\n<img src=\"{id}.svg\" alt=\"{title}\">\n\
             <figcaption><b>{title}.</b> {caption} <a href=\"{id}.csv\">CSV</a></figcaption>\n\
             </figure>\n",
            id = figure.id,
            title = escape(&figure.title),
            caption = escape(&figure.caption),
        );
    }
    page.push_str("</body>\n</html>\n");
    page
}
