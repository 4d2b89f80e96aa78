//! The processor: its model and vector units, and what they do in a cycle.

use serde::{Deserialize, Serialize};

use super::Root;

/// The vector instructions of a processor or of a kernel of the BLAS, from the narrowest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Vectors {
    /// Two doubles (x86).
    Sse,
    /// Four doubles, without fused multiply-add (x86).
    Avx,
    /// Four doubles with FMA (x86).
    Avx2,
    /// Eight doubles (x86).
    Avx512,
    /// Two doubles (Arm).
    Neon,
    /// Two to eight doubles (Arm).
    Sve,
}

impl Vectors {
    /// The name of the instructions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sse => "SSE",
            Self::Avx => "AVX",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Neon => "NEON",
            Self::Sve => "SVE",
        }
    }
}

/// A processor, as `/proc/cpuinfo` describes its fastest core.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// The name; on Arm, of a core that this program knows.
    pub name: Option<String>,
    /// The widest vectors.
    pub vectors: Option<Vectors>,
    /// Whether AMD made it.
    pub is_amd: bool,
    /// The family and the model of an x86 processor.
    pub family_and_model: Option<(u64, u64)>,
    /// The implementer and the part of an Arm core.
    pub arm_part: Option<(u64, u64)>,
    /// The nominal clock in the name of the model (`@ 2.60GHz`), in kHz.
    pub named_khz: Option<u64>,
}

/// An Arm core: implementer, part, name, floating-point operations a cycle.
type ArmCore = (u64, u64, &'static str, f64);

/// Arm cores with what their vector units do, by the software optimization guides of Arm and
/// Fujitsu. Where a processor has several kinds, the last one in this list counts.
const ARM_CORES: [ArmCore; 12] = [
    (0x41, 0xd03, "Cortex-A53", 2.0),
    (0x41, 0xd05, "Cortex-A55", 4.0),
    (0x41, 0xd08, "Cortex-A72", 4.0),
    (0x41, 0xd0b, "Cortex-A76", 8.0),
    (0x41, 0xd0c, "Neoverse-N1", 8.0),
    (0x41, 0xd49, "Neoverse-N2", 8.0),
    (0x41, 0xd8e, "Neoverse-N3", 8.0),
    (0xc0, 0xac3, "AmpereOne", 8.0),
    (0x41, 0xd40, "Neoverse-V1", 16.0),
    (0x41, 0xd4f, "Neoverse-V2", 16.0),
    (0x41, 0xd84, "Neoverse-V3", 16.0),
    (0x46, 0x001, "A64FX", 32.0),
];

impl Processor {
    fn arm_core(&self) -> Option<&'static ArmCore> {
        let part = self.arm_part?;
        ARM_CORES.iter().find(|core| (core.0, core.1) == part)
    }

    /// Floating-point operations of a core in a cycle, by its vector units; `None` if this program
    /// does not know the core.
    pub fn flops_a_cycle(&self) -> Option<f64> {
        /// Family 25 (Zen 3 and 4) does AVX-512 in two halves.
        const HALVES: u64 = 25;
        let is_halved = self.is_amd && self.family_and_model.is_some_and(|it| it.0 <= HALVES);
        // Zen and Zen+ (family 23, models below 0x30) do AVX2 in two halves.
        let is_first_zen =
            self.is_amd && self.family_and_model.is_some_and(|it| it.0 == 23 && it.1 < 0x30);
        Some(match self.vectors? {
            Vectors::Sse => 4.0,
            Vectors::Avx => 8.0,
            Vectors::Avx2 if is_first_zen => 8.0,
            Vectors::Avx2 => 16.0,
            Vectors::Avx512 if is_halved => 16.0,
            Vectors::Avx512 => 32.0,
            Vectors::Neon | Vectors::Sve => self.arm_core()?.3,
        })
    }
}

pub fn read(root: &Root) -> Processor {
    let text = root.text("proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| field(&text, name);
    let name = field("model name").map(str::to_owned);
    let pair = |family: &str, model: &str| {
        Some((field(family)?.parse().ok()?, field(model)?.parse().ok()?))
    };
    // 2.6 for `Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz`.
    let named = |name: &str| name.rsplit_once("@ ")?.1.strip_suffix("GHz")?.parse::<f64>().ok();
    let mut processor = Processor {
        named_khz: name.as_deref().and_then(named).map(|ghz| (ghz * 1e6).round() as u64),
        name,
        vectors: vectors(field("flags"), field("Features")),
        is_amd: field("vendor_id") == Some("AuthenticAMD"),
        family_and_model: pair("cpu family", "model"),
        arm_part: arm_part(&text),
    };
    if let Some(core) = processor.arm_core() {
        processor.name.get_or_insert_with(|| core.2.to_owned());
    }
    processor
}

fn vectors(x86: Option<&str>, arm: Option<&str>) -> Option<Vectors> {
    let has = |flags: Option<&str>, names: &[&str]| {
        let given: Vec<&str> = flags.unwrap_or_default().split(' ').collect();
        names.iter().all(|name| given.contains(name))
    };
    let avx512 = ["avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"];
    match () {
        () if has(x86, &avx512) => Some(Vectors::Avx512),
        () if has(x86, &["avx2", "fma"]) => Some(Vectors::Avx2),
        () if has(x86, &["avx"]) => Some(Vectors::Avx),
        () if has(x86, &["sse2"]) => Some(Vectors::Sse),
        () if has(arm, &["sve"]) => Some(Vectors::Sve),
        () if has(arm, &["asimd"]) => Some(Vectors::Neon),
        () => None,
    }
}

/// The implementer and part of the fastest kind of core that this program knows, or else of the
/// first core.
fn arm_part(text: &str) -> Option<(u64, u64)> {
    let number = |line: &str, name: &str| {
        let (key, value) = line.split_once(':')?;
        let digits = value.trim().strip_prefix("0x")?;
        (key.trim() == name).then(|| u64::from_str_radix(digits, 16).ok())?
    };
    let all = |name: &'static str| text.lines().filter_map(move |line| number(line, name));
    let parts: Vec<(u64, u64)> = all("CPU implementer").zip(all("CPU part")).collect();
    let place = |part: &(u64, u64)| ARM_CORES.iter().position(|core| (core.0, core.1) == *part);
    let known = parts.iter().filter(|part| place(part).is_some()).max_by_key(|part| place(part));
    known.or(parts.first()).copied()
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name && !value.trim().is_empty()).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    fn from_cpuinfo(cpuinfo: &str) -> Processor {
        let tree = Tree::new();
        tree.file("proc/cpuinfo", cpuinfo);
        read(&tree.root())
    }

    #[test]
    fn x86_is_known_by_flags_and_family() {
        let all = "fpu sse2 avx avx2 fma avx512f avx512dq avx512cd avx512bw avx512vl";
        let zen = |family: u64| {
            let head = format!("vendor_id : AuthenticAMD\ncpu family : {family}\nmodel : 17\n");
            from_cpuinfo(&format!("{head}model name : AMD EPYC\nflags : {all}\n"))
        };
        assert_eq!((zen(25).vectors, zen(25).flops_a_cycle()), (Some(Vectors::Avx512), Some(16.0)));
        assert_eq!(zen(26).flops_a_cycle(), Some(32.0));
        let xeon = from_cpuinfo(
            "vendor_id : GenuineIntel\nmodel name : Xeon CPU @ 2.60GHz\n\
                       flags : fpu sse2 avx avx2 fma\n",
        );
        assert_eq!((xeon.named_khz, xeon.flops_a_cycle()), (Some(2_600_000), Some(16.0)));
        let zen_of = |model: u64| {
            let head = format!("vendor_id : AuthenticAMD\ncpu family : 23\nmodel : {model}\n");
            from_cpuinfo(&format!("{head}flags : fpu sse2 avx avx2 fma\n")).flops_a_cycle()
        };
        assert_eq!((zen_of(1), zen_of(0x31)), (Some(8.0), Some(16.0)), "Zen, Zen 2");
        assert_eq!(from_cpuinfo("flags : sse2 avx\n").vectors, Some(Vectors::Avx));
        assert_eq!(from_cpuinfo("").flops_a_cycle(), None);
    }

    #[test]
    fn arm_is_known_by_its_part() {
        let core = |implementer: &str, part: &str, features: &str| {
            format!("Features : {features}\nCPU implementer : {implementer}\nCPU part : {part}\n\n")
        };
        let grace = from_cpuinfo(&core("0x41", "0xd4f", "fp asimd sve sve2"));
        assert_eq!((grace.vectors, grace.flops_a_cycle()), (Some(Vectors::Sve), Some(16.0)));
        assert_eq!(grace.name.as_deref(), Some("Neoverse-V2"));
        let a64fx = from_cpuinfo(&core("0x46", "0x001", "fp asimd sve"));
        assert_eq!((a64fx.name.as_deref(), a64fx.flops_a_cycle()), (Some("A64FX"), Some(32.0)));
        let mixed = [core("0x41", "0xd05", "asimd"), core("0x41", "0xd0b", "asimd")].concat();
        assert_eq!(from_cpuinfo(&mixed).name.as_deref(), Some("Cortex-A76"));
        let unknown = from_cpuinfo(&core("0x61", "0x022", "fp asimd"));
        assert_eq!((unknown.vectors, unknown.flops_a_cycle()), (Some(Vectors::Neon), None));
    }
}
