//! The published schemas, and what they find wrong with a document.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

pub struct Schema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl Schema {
    /// The schema in `text`, which may have no other keywords than those of JSON Schema: by default
    /// a validator ignores a misspelt one.
    pub fn new(text: &str) -> Self {
        const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
        let keywords = json!({
            "$schema": DRAFT,
            "$dynamicAnchor": "meta",
            "$ref": DRAFT,
            "unevaluatedProperties": false,
        });
        let schema: Value = serde_json::from_str(text).unwrap();
        assert_eq!(schema["$schema"], DRAFT);
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        let mut compile = |name, schema| {
            compiler.add_resource(name, schema).unwrap();
            compiler.compile(name, &mut schemas).unwrap()
        };
        let keywords = compile("urn:keywords", keywords);
        let root = compile("urn:published", schema.clone());
        schemas.validate(&schema, keywords).unwrap_or_else(|error| panic!("{error:#}"));
        Schema { schemas, root }
    }

    #[track_caller]
    pub fn check(&self, document: &Value) {
        if let Some(why) = self.refusal(document) {
            panic!("{why}");
        }
    }

    /// Why the document is not valid, if it is not.
    pub fn refusal(&self, document: &Value) -> Option<String> {
        self.schemas.validate(document, self.root).err().map(|error| format!("{error:#}"))
    }
}
