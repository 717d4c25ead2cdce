//! Recordings of kube-proxies, and the objects of the recordings.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use svclab_rules::kube_proxy::history::NFT_OBEYS_MASQUERADE_FLAG;
use svclab_rules::kube_proxy::{Family, KubeProxy, Mode, Objects};
use svclab_rules::objects::{EndpointSlice, Node, Service, ServiceCidr};
use svclab_ruleset::tool::Format;

use crate::root;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn home() -> PathBuf {
    root().join("tests/recorded/kube-proxy")
}

/// A recorded output of `iptables-save` or `ip6tables-save` in iptables mode.
#[derive(Debug, Clone)]
pub struct Recording {
    pub version: String,
    pub objects: String,
    pub flags: String,
    pub family: Family,
    path: PathBuf,
}

/// Returns all recordings of iptables mode.
pub fn all_iptables() -> Vec<Recording> {
    let mut recordings = Vec::new();
    for version in entries(&home()) {
        let name = version
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with("v1.") {
            continue;
        }
        for path in entries(&version.join("iptables")) {
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let parts: Vec<&str> = file.split('.').collect();
            if let [
                objects,
                flags,
                program @ ("iptables-save" | "ip6tables-save"),
            ] = parts[..]
            {
                recordings.push(Recording {
                    family: if program == "iptables-save" {
                        Family::V4
                    } else {
                        Family::V6
                    },
                    version: name.clone(),
                    objects: objects.to_owned(),
                    flags: flags.to_owned(),
                    path: path.clone(),
                });
            }
        }
    }
    assert!(recordings.len() >= 63, "recordings are missing");
    recordings
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}

impl Recording {
    pub fn name(&self) -> String {
        let Self {
            version,
            objects,
            flags,
            family,
            ..
        } = self;
        format!("{version}::{objects}::{flags}::{family}")
    }

    pub fn text(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.path)?)
    }

    pub fn proxy(&self) -> Result<KubeProxy> {
        proxy(&self.version, &self.flags)
    }

    /// Whether `KUBE-MARK-DROP` was created before kube-proxy started, in place of a kubelet.
    pub fn had_mark_drop(&self) -> bool {
        ["v1.14.0", "v1.18.2"].contains(&self.version.as_str())
    }
}

/// Returns every recorded file that `svclab diff` reads.
pub fn files() -> Vec<PathBuf> {
    let versions = entries(&home()).into_iter();
    let modes = versions.flat_map(|version| entries(&version));
    let files: Vec<PathBuf> = modes
        .filter(|mode| mode.is_dir())
        .flat_map(|mode| entries(&mode))
        .filter(|path| format_of(path).is_some())
        .collect();
    assert!(files.len() >= 300, "recordings are missing");
    files
}

/// Returns the format of a recorded file, by its name.
pub fn format_of(path: &Path) -> Option<Format> {
    Format::from_file_name(path.file_name()?.to_str()?)
}

/// Returns the kube-proxy that ran with `flags`.
fn proxy(version: &str, flags: &str) -> Result<KubeProxy> {
    let mut proxy = KubeProxy::new(version.parse()?);
    match flags {
        "cidr" => proxy.cluster_cidr = Some("10.244.0.0/16,fd00:10:244::/56".parse()?),
        "nocidr" => {}
        "masqall" => proxy.masquerade_all = true,
        other => return Err(format!("unknown flags `{other}`").into()),
    }
    Ok(proxy)
}

/// A recorded state of ipvs mode in four files.
#[derive(Debug, Clone)]
pub struct IpvsRecording {
    pub version: String,
    pub objects: String,
    pub flags: String,
    folder: PathBuf,
}

/// Returns all recordings of ipvs mode.
pub fn all_ipvs() -> Vec<IpvsRecording> {
    let mut recordings = Vec::new();
    for version in entries(&home()) {
        let name = version.file_name().unwrap_or_default().to_string_lossy();
        for path in entries(&version.join("ipvs")) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let parts: Vec<&str> = file.split('.').collect();
            if let [objects, flags, "iptables-save"] = parts[..] {
                recordings.push(IpvsRecording {
                    version: name.clone().into_owned(),
                    objects: objects.to_owned(),
                    flags: flags.to_owned(),
                    folder: version.join("ipvs"),
                });
            }
        }
    }
    assert!(
        recordings.len() >= 48,
        "recordings of ipvs mode are missing"
    );
    recordings
}

impl IpvsRecording {
    pub fn name(&self) -> String {
        format!("{}::{}::{}", self.version, self.objects, self.flags)
    }

    /// Returns the recorded output of a program.
    pub fn text(&self, program: &str) -> Result<String> {
        let file = format!("{}.{}.{program}", self.objects, self.flags);
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()).into())
    }

    pub fn proxy(&self) -> Result<KubeProxy> {
        let mut proxy = proxy(&self.version, &self.flags)?;
        proxy.mode = Mode::Ipvs;
        Ok(proxy)
    }
}

/// A recorded state of nftables mode: the tables of both address families.
#[derive(Debug, Clone)]
pub struct NftablesRecording {
    pub version: String,
    pub objects: String,
    pub flags: String,
    path: PathBuf,
}

/// Returns all recordings of nftables mode.
pub fn all_nftables() -> Vec<NftablesRecording> {
    let mut recordings = Vec::new();
    for version in entries(&home()) {
        let name = version.file_name().unwrap_or_default().to_string_lossy();
        for path in entries(&version.join("nftables")) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let parts: Vec<&str> = file.split('.').collect();
            if let [objects, flags, "nft"] = parts[..] {
                recordings.push(NftablesRecording {
                    version: name.clone().into_owned(),
                    objects: objects.to_owned(),
                    flags: flags.to_owned(),
                    path: path.clone(),
                });
            }
        }
    }
    assert!(
        recordings.len() >= 18,
        "recordings of nftables mode are missing"
    );
    recordings
}

impl NftablesRecording {
    pub fn name(&self) -> String {
        format!("{}::{}::{}", self.version, self.objects, self.flags)
    }

    pub fn text(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.path)?)
    }

    /// In these recordings, `cidr` contained only the IPv4 network.
    pub fn proxy(&self) -> Result<KubeProxy> {
        let mut proxy = proxy(&self.version, &self.flags)?;
        proxy.mode = Mode::Nftables;
        if proxy.cluster_cidr.is_some() {
            proxy.cluster_cidr = Some("10.244.0.0/16".parse()?);
        }
        proxy.masquerade_all &= proxy.version.has(&NFT_OBEYS_MASQUERADE_FLAG);
        Ok(proxy)
    }
}

/// Objects of a `List`.
#[derive(Debug, Default)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub services: Vec<Service>,
    pub slices: Vec<EndpointSlice>,
    pub service_cidrs: Vec<ServiceCidr>,
}

impl Cluster {
    pub fn from_objects(objects: Vec<Value>) -> Result<Self> {
        let mut cluster = Self::default();
        for object in objects {
            match object["kind"].as_str() {
                Some("Node") => cluster.nodes.push(serde_json::from_value(object)?),
                Some("Service") => cluster.services.push(serde_json::from_value(object)?),
                Some("EndpointSlice") => cluster.slices.push(serde_json::from_value(object)?),
                other => return Err(format!("unexpected kind {other:?}").into()),
            }
        }
        Ok(cluster)
    }

    pub fn objects<'a>(&'a self, node: &'a str) -> Objects<'a> {
        Objects {
            node,
            nodes: &self.nodes,
            services: &self.services,
            endpoint_slices: &self.slices,
            service_cidrs: &self.service_cidrs,
            interface_addresses: &[],
        }
    }
}

/// Reads the objects of the recordings called `name`.
pub fn recorded_cluster(name: &str) -> Result<Cluster> {
    Cluster::from_objects(recorded_objects(name)?)
}

/// Reads the objects of the recordings called `name`, as an API server serves them.
pub fn recorded_objects(name: &str) -> Result<Vec<Value>> {
    read_objects(&home().join("objects").join(format!("{name}.json")))
}

/// Reads a ruleset that kube-proxy's own tests expect, and its objects.
pub fn golden(name: &str) -> Result<(String, Cluster)> {
    let folder = home().join("golden");
    let text = fs::read_to_string(folder.join(format!("{name}.iptables-restore")))?;
    let objects = read_objects(&folder.join(format!("{name}.json")))?;
    Ok((text, Cluster::from_objects(objects)?))
}

fn read_objects(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut list: Value = serde_json::from_str(&text)?;
    Ok(std::mem::take(
        list["items"].as_array_mut().ok_or("not a List")?,
    ))
}
