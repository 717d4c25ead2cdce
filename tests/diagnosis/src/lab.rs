//! Lab files of the bench: the healthy lab with an axis `fault`, whose value `present` breaks it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};

use crate::fault::{Change, Fault};
use crate::mode::Mode;

/// Line of the healthy lab that a lab file with faults replaces.
const PLACEHOLDER: &str = "    fault: {none: [], present: []}";

/// Text of the healthy lab.
#[derive(Debug)]
pub(crate) struct HealthyLab {
    name: String,
    text: String,
}

/// Lab file with one fault or more.
#[derive(Debug)]
pub(crate) struct BrokenLab {
    /// Name of the healthy case.
    pub(crate) healthy: String,
    /// Name of the broken case.
    pub(crate) broken: String,
    /// Name of the broken lab, if it is running.
    pub(crate) running: String,
}

impl HealthyLab {
    /// Reads the lab from a file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if !text.contains(PLACEHOLDER) {
            return Err(format!("{} lacks the line `{PLACEHOLDER}`", path.display()));
        }
        let name = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned());
        Ok(Self {
            name: name.unwrap_or_default(),
            text,
        })
    }

    /// Parses the Kubernetes objects of the lab.
    pub(crate) fn objects(&self) -> Result<Vec<Value>, String> {
        let all: Vec<Value> =
            serde_saphyr::from_multiple(&self.text).map_err(|error| error.to_string())?;
        Ok(all
            .into_iter()
            .filter(|object| object["kind"] != "Lab")
            .collect())
    }

    /// Writes a lab file with faults to a directory. The lab has the name of its file. The patches
    /// `base` apply to both cases.
    pub(crate) fn write(
        &self,
        directory: &Path,
        name: &str,
        mode: Mode,
        base: &[Value],
        faults: &[&Fault],
    ) -> io::Result<BrokenLab> {
        // Flow style of YAML.
        let present = [base, &patches(faults)].concat();
        let axis = format!(
            "    fault: {{none: {}, present: {}}}",
            json!(base),
            json!(present)
        );
        let old = format!("metadata: {{name: {}}}", self.name);
        let text = self.text.replacen(PLACEHOLDER, &axis, 1);
        let text = text.replacen(&old, &format!("metadata: {{name: {name}}}"), 1);
        let path: PathBuf = directory.join(format!("{name}.yaml"));
        fs::write(&path, text)?;
        let case = |value: &str| format!("{}/mode={},fault={value}", path.display(), mode.name());
        Ok(BrokenLab {
            healthy: case("none"),
            broken: case("present"),
            running: name.to_owned(),
        })
    }
}

/// Returns the patches of all faults. A patch replaces a list as a whole, so all commands on a node
/// are in one patch.
fn patches(faults: &[&Fault]) -> Vec<Value> {
    let mut by_node: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut all = Vec::new();
    for fault in faults {
        match &fault.change {
            Change::Commands { node, commands } => {
                let list = by_node.entry(node).or_default();
                list.extend(commands.iter().map(String::as_str));
            }
            Change::Patches(patches) => all.extend(patches.iter().cloned()),
        }
    }
    all.extend(by_node.into_iter().map(|(node, commands)| {
        json!({"patch": "Lab", "merge": {"spec": {"nodes": {node: {"byHand": {"commands": commands}}}}}})
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::commands;

    #[test]
    fn patches_commands_of_one_node_are_in_one_list() {
        let first = commands("node-1", &["ip link set a down".to_owned()], Vec::new());
        let second = commands("node-1", &["ip link set b down".to_owned()], Vec::new());
        let merged = patches(&[&first, &second]);
        let list = &merged[0]["merge"]["spec"]["nodes"]["node-1"]["byHand"]["commands"];
        assert_eq!(*list, json!(["ip link set a down", "ip link set b down"]));
        assert_eq!(merged.len(), 1);
    }

    #[test]
    fn write_healthy_lab_has_both_cases() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("diagnosis.yaml");
        let lab = HealthyLab::read(&path).expect("the lab of the bench");
        assert!(lab.objects().expect("valid YAML").len() > 10);
        let directory = tempfile::tempdir().expect("a directory");
        let fault = commands("node-1", &["sh -c 'exit'".to_owned()], Vec::new());
        let written = lab.write(directory.path(), "broken", Mode::Ipvs, &[], &[&fault]);
        assert!(
            written
                .expect("written")
                .broken
                .ends_with("broken.yaml/mode=ipvs,fault=present")
        );
        let text = fs::read_to_string(directory.path().join("broken.yaml")).expect("the file");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("valid YAML");
        assert_eq!(documents[0]["metadata"]["name"], "broken");
        let present = &documents[0]["spec"]["axes"]["fault"]["present"][0]["merge"];
        assert_eq!(
            present["spec"]["nodes"]["node-1"]["byHand"]["commands"][0],
            "sh -c 'exit'"
        );
    }
}
