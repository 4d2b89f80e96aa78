//! A checker for the part of JSON Schema (draft 2020-12) that the published schema uses. A keyword
//! that it does not know is an error of the schema, so nothing is passed over.

use serde_json::Value;

/// Keywords that describe and do not check.
const ANNOTATIONS: [&str; 5] = ["$schema", "$id", "$defs", "title", "description"];

pub struct Schema {
    root: Value,
}

impl Schema {
    pub fn new(text: &str) -> Self {
        let root: Value = serde_json::from_str(text).unwrap();
        assert_eq!(root["$schema"], "https://json-schema.org/draft/2020-12/schema");
        Schema { root }
    }

    #[track_caller]
    pub fn check(&self, document: &Value) {
        let errors = self.errors(document);
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }

    pub fn errors(&self, document: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.visit(&self.root, document, "", &mut errors);
        errors
    }

    fn visit(&self, schema: &Value, value: &Value, place: &str, errors: &mut Vec<String>) {
        for (keyword, rule) in schema.as_object().expect("a schema is an object") {
            if ANNOTATIONS.contains(&keyword.as_str()) {
                continue;
            }
            let holds = match keyword.as_str() {
                "type" => types(rule).any(|name| is_a(value, name)),
                "const" => value == rule,
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
                "minItems" => value.as_array().is_none_or(|list| list.len() >= length(rule)),
                "maxItems" => value.as_array().is_none_or(|list| list.len() <= length(rule)),
                "pattern" => value.as_str().is_none_or(|text| fits(rule.as_str().unwrap(), text)),
                "required" => value.as_object().is_none_or(|object| {
                    rule.as_array()
                        .unwrap()
                        .iter()
                        .all(|n| object.contains_key(n.as_str().unwrap()))
                }),
                "additionalProperties" => {
                    assert_eq!(rule, &Value::Bool(false), "only false is known");
                    value.as_object().is_none_or(|object| {
                        object.keys().all(|name| schema["properties"].get(name).is_some())
                    })
                }
                "properties" => {
                    for (name, inner) in rule.as_object().unwrap() {
                        if let Some(member) = value.get(name) {
                            self.visit(inner, member, &format!("{place}/{name}"), errors);
                        }
                    }
                    true
                }
                "items" => {
                    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.visit(rule, item, &format!("{place}/{i}"), errors);
                    }
                    true
                }
                "oneOf" => self.one_of(rule.as_array().unwrap(), value),
                "$ref" => {
                    let path = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    let target = self.root.pointer(path).expect("a reference has a target");
                    self.visit(target, value, place, errors);
                    true
                }
                unknown => panic!("the checker does not know the keyword {unknown}"),
            };
            if !holds {
                errors.push(format!("{place}: {value} breaks {keyword}: {rule}"));
            }
        }
    }

    fn one_of(&self, choices: &[Value], value: &Value) -> bool {
        let fitting = choices.iter().filter(|choice| {
            let mut errors = Vec::new();
            self.visit(choice, value, "", &mut errors);
            errors.is_empty()
        });
        fitting.count() == 1
    }
}

fn types(rule: &Value) -> impl Iterator<Item = &str> {
    let names = match rule {
        Value::Array(names) => names.as_slice(),
        name => std::slice::from_ref(name),
    };
    names.iter().map(|name| name.as_str().unwrap())
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        unknown => panic!("{unknown} is no type"),
    }
}

fn length(rule: &Value) -> usize {
    usize::try_from(rule.as_u64().unwrap()).unwrap()
}

/// Whether a text matches a regular expression `^...$` of characters and `[classes]`, each once or
/// `?`, `+`, `{n}`, `{n,}` times.
fn fits(pattern: &str, text: &str) -> bool {
    let inner = pattern.strip_prefix('^').and_then(|p| p.strip_suffix('$')).unwrap();
    let text: Vec<char> = text.chars().collect();
    matches_here(&inner.chars().collect::<Vec<_>>(), &text)
}

fn matches_here(pattern: &[char], text: &[char]) -> bool {
    let Some(&first) = pattern.first() else { return text.is_empty() };
    let (class, rest) = if first == '[' {
        let end = pattern.iter().position(|&c| c == ']').unwrap();
        (&pattern[1..end], &pattern[end + 1..])
    } else {
        (&pattern[..1], &pattern[1..])
    };
    let (least, most, rest) = times(rest);
    let run = text.iter().take_while(|c| in_class(class, **c)).count().min(most);
    (least..=run).rev().any(|count| matches_here(rest, &text[count..]))
}

fn times(pattern: &[char]) -> (usize, usize, &[char]) {
    match pattern.first() {
        Some('?') => (0, 1, &pattern[1..]),
        Some('+') => (1, usize::MAX, &pattern[1..]),
        Some('{') => {
            let end = pattern.iter().position(|&c| c == '}').unwrap();
            let text: String = pattern[1..end].iter().collect();
            let (least, most) = match text.split_once(',') {
                Some((least, "")) => (least.parse().unwrap(), usize::MAX),
                Some((least, most)) => (least.parse().unwrap(), most.parse().unwrap()),
                None => (text.parse().unwrap(), text.parse().unwrap()),
            };
            (least, most, &pattern[end + 1..])
        }
        _ => (1, 1, pattern),
    }
}

fn in_class(class: &[char], c: char) -> bool {
    match class {
        [first, '-', last, rest @ ..] => (*first..=*last).contains(&c) || in_class(rest, c),
        [one, rest @ ..] => *one == c || in_class(rest, c),
        [] => false,
    }
}
