//! Tests the new values, and that no text of an object remains.

use std::net::IpAddr;

use super::*;
use crate::objects::Objects;
use svclab_diagnostic::source::{Source, Sources};

fn key() -> RedactionKey {
    RedactionKey::new(b"a key for tests only").expect("a key")
}

fn redact(text: &str) -> Result<String, Vec<String>> {
    let sources = Sources::from(Source::from_text("objects.yaml", text));
    match redact_objects(&sources, &key()) {
        Ok((objects, _)) => Ok(objects.text),
        Err(errors) => Err(errors.into_iter().map(|error| error.message).collect()),
    }
}

#[test]
fn key_shorter_than_16_bytes_is_refused() {
    assert_eq!(RedactionKey::new(&[1; 15]).err(), Some(KeyError::TooShort));
    assert!(RedactionKey::new(&[0; 16]).is_ok());
}

fn common_bits(first: IpAddr, second: IpAddr) -> u32 {
    let bits = |address| match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    };
    (bits(first) ^ bits(second)).leading_zeros()
}

#[test]
fn addresses_keep_common_prefixes_and_kinds() {
    let addresses = [
        "10.0.0.1",
        "10.244.1.9",
        "10.244.1.10",
        "10.244.2.9",
        "172.17.3.4",
        "192.168.50.11",
        "100.64.9.9",
        "203.0.113.9",
        "8.8.8.8",
        "fd00:10::1:2",
        "fd00:10::2:2",
        "2001:db8::7",
        "fe80::1:2:3:4",
    ];
    let pairs: Vec<(IpAddr, IpAddr)> = addresses
        .iter()
        .map(|text| {
            let turned = key().redact_address(text).expect("an address");
            (
                text.parse().expect("an address"),
                turned.parse().expect("an address"),
            )
        })
        .collect();
    for (before, after) in &pairs {
        assert_ne!(before, after);
        for (other, other_after) in &pairs {
            assert_eq!(
                common_bits(*before, *other),
                common_bits(*after, *other_after),
                "{before} {other}"
            );
        }
    }
    for text in [
        "127.0.0.1",
        "169.254.1.2",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
    ] {
        assert_eq!(key().redact_address(text).as_deref(), Some(text));
    }
}

#[test]
fn networks_stay_networks_and_other_texts_are_none() {
    for network in ["0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8"] {
        assert_eq!(key().redact_address(network).as_deref(), Some(network));
    }
    let network = key().redact_address("10.244.0.0/16").expect("a network");
    assert!(network.ends_with(".0.0/16") && network != "10.244.0.0/16");
    for text in ["", "None", "10.0.0", "cart", "10.0.0.0/x", "a/b"] {
        assert_eq!(key().redact_address(text), None, "{text}");
    }
}

#[test]
fn names_depend_on_kind_and_common_names_stay() {
    let rename = |kind, name| key().rename(kind, name);
    assert_eq!(rename(NameKind::Namespace, "kube-system"), "kube-system");
    assert_eq!(rename(NameKind::Name, "kubernetes"), "kubernetes");
    assert_eq!(rename(NameKind::Name, ""), "");
    assert_ne!(rename(NameKind::Name, "kube-system"), "kube-system");
    assert_eq!(
        rename(NameKind::Node, "Acme-1"),
        rename(NameKind::Node, "acme-1")
    );
    assert_eq!(
        Some(rename(NameKind::Node, "10.0.0.5")),
        key().redact_address("10.0.0.5")
    );
    // printf '%s\n%s' "$(printf 'a key for tests only' | sha256sum | cut -c 1-64)" 'name cart' |
    //     sha256sum
    insta::assert_snapshot!(rename(NameKind::Name, "cart"));
}

const OBJECTS: &str = include_str!("objects.yaml");

#[test]
fn objects_keep_only_what_svclab_reads() {
    let text = redact(OBJECTS).expect("objects");
    for secret in ["acme", "10.244.1", "10.96.0", "203.0.113", "fd00:10"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let load = |text: &str| {
        let sources = Sources::from(Source::from_text("x", text));
        Objects::load(&sources).expect("objects").0
    };
    let (before, after) = (load(OBJECTS), load(&text));
    let slices = |objects: &Objects| -> Vec<usize> {
        let services = objects.services.iter();
        services
            .map(|service| objects.slices_of(&service.namespace, &service.name).count())
            .collect()
    };
    assert_eq!(slices(&before), [2, 1]);
    assert_eq!(slices(&after), [2, 1]);
    // One pod is written, two are those of the Deployment.
    assert_eq!((before.pods.len(), after.pods.len()), (3, 3));
    let sources = Sources::from(Source::from_text("objects.yaml", OBJECTS));
    let (redacted, _) = redact_objects(&sources, &key()).expect("objects");
    assert_eq!(redacted.renamed.len(), 5);
    for (old, new) in &redacted.renamed {
        assert!(
            before.tree(old).is_some() && after.tree(new).is_some(),
            "{old} {new}"
        );
    }
    insta::assert_snapshot!(text);
}

#[test]
fn port_names_that_look_like_other_types_stay_texts() {
    for name in ["true", "null", "no", "0x1", "1e3", "12", "007", "1-2"] {
        let object = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: x}}, \
             spec: {{ports: [{{name: \"{name}\", port: 80, targetPort: \"{name}\"}}]}}}}"
        );
        let text = redact(&object).expect("an object");
        let sources = Sources::from(Source::from_text("x", text));
        let (objects, _) = Objects::load(&sources).expect("objects");
        let spec = objects.services[0].value.spec.clone().expect("a spec");
        let ports = spec.ports.expect("ports");
        assert_eq!(ports[0].name.as_deref(), Some(name));
    }
}

#[test]
fn files_without_objects_are_errors() {
    let messages: Vec<String> = [
        "apiVersion: svclab/v1\nkind: Lab\nmetadata: {name: x}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n",
        "*nat\n",
        "apiVersion: v1\nkind: Pod\n",
    ]
    .iter()
    .flat_map(|text| redact(text).expect_err("no objects"))
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}
