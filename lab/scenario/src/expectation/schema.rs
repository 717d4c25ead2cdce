//! JSON schema of rows, whose keys are keywords and names of probes.

use std::borrow::Cow;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::decode::values::AxisValues;
use crate::expectation::{
    ANY, ChainExpectation, ClaimRef, CounterExpectation, Expected, LinkExpectation,
    ProbeExpectation, Row, RuleExpectation, SetExpectation, StepExpectation,
    VirtualServerExpectation, WireExpectation,
};

impl JsonSchema for Expected {
    fn schema_name() -> Cow<'static, str> {
        "Expected".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let wire =
            with_description::<Vec<WireExpectation>>(generator, "Expected packets on interfaces.");
        let counters = with_description::<Vec<CounterExpectation>>(
            generator,
            "Expected growth of kernel counters.",
        );
        let rules = with_description::<Vec<RuleExpectation>>(
            generator,
            "Expected number of packets that match rules.",
        );
        let chains =
            with_description::<Vec<ChainExpectation>>(generator, "Expected rules of chains.");
        let sets = with_description::<Vec<SetExpectation>>(
            generator,
            "Expected type and members of sets.",
        );
        let ipvs = with_description::<Vec<VirtualServerExpectation>>(
            generator,
            "Expected IPVS virtual servers.",
        );
        let links = with_description::<Vec<LinkExpectation>>(
            generator,
            "Expected flags and addresses of interfaces.",
        );
        let steps = with_description::<IndexMap<String, StepExpectation>>(
            generator,
            "Expected time for the traffic to move after a step, by the step's name.",
        );
        let probe = generator.subschema_for::<ProbeExpectation>();
        json_schema!({
            "description": "Expected results of probes, by probe name, and other expectations.",
            "type": "object",
            "properties": {
                "wire": wire,
                "counters": counters,
                "rules": rules,
                "chains": chains,
                "sets": sets,
                "ipvs": ipvs,
                "links": links,
                "steps": steps,
            },
            "additionalProperties": {
                "anyOf": [
                    {"const": ANY, "description": "Any outcome of the probe is accepted."},
                    probe,
                ],
            },
        })
    }
}

impl JsonSchema for Row {
    fn schema_name() -> Cow<'static, str> {
        "Row".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Expected::json_schema(generator);
        let when = with_description::<IndexMap<String, AxisValues>>(
            generator,
            "Axis values of the cases for this row. An axis that is not named may have any value.",
        );
        let claims = with_description::<Vec<ClaimRef>>(
            generator,
            "Claims of `spec.claims` that the row refers to.",
        );
        schema.insert(
            "description".to_owned(),
            "Expectations for the cases that `when` matches. The first matching row applies to a \
             case."
                .into(),
        );
        if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
            properties.insert("when".to_owned(), when.into());
            properties.insert("claims".to_owned(), claims.into());
        }
        schema
    }
}

/// Returns the schema of a type with another description.
fn with_description<T: JsonSchema>(generator: &mut SchemaGenerator, description: &str) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    schema.insert("description".to_owned(), description.into());
    schema
}
