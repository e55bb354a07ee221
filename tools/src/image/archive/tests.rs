//! Tests that read archives back.

use std::io::Read;

use super::*;

fn image(folder: &Path) -> Image {
    let program = folder.join("program");
    fs::write(&program, "a program").unwrap();
    let mut files = Tree::default();
    files.file("/usr/local/bin/program", &program).unwrap();
    files.folder("/tmp", 0o1777).unwrap();
    Image {
        names: vec![
            "example.com:5000/a/program:1".to_owned(),
            "b/program:2".to_owned(),
        ],
        files,
        run: Run {
            entrypoint: vec!["/usr/local/bin/program".to_owned()],
            user: "65532:65532".to_owned(),
            environment: [("PATH".to_owned(), "/usr/local/bin".to_owned())].into(),
            labels: [("title".to_owned(), "a program".to_owned())].into(),
            ports: vec!["80/tcp".to_owned()],
        },
    }
}

fn read(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut tar = tar::Archive::new(fs::File::open(archive).unwrap());
    let mut files = BTreeMap::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(path, bytes);
    }
    files
}

/// The blob of a descriptor; checks its size and hash.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let hash = descriptor["digest"]
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap();
    let bytes = &files[&format!("blobs/sha256/{hash}")];
    assert_eq!(hex(&Sha256::digest(bytes)), hash);
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

#[test]
fn the_index_refers_to_all_blobs_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("images/program.tar");
    let digest = image(dir.path()).write(&archive).unwrap();
    let files = read(&archive);
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    assert_eq!(
        json(&files["oci-layout"]),
        json!({"imageLayoutVersion": "1.0.0"})
    );

    let index = json(&files["index.json"]);
    let named = index["manifests"].as_array().unwrap();
    let annotation =
        |entry: &Value, key: &str| entry["annotations"][key].as_str().unwrap().to_owned();
    let names: Vec<_> = named
        .iter()
        .map(|entry| annotation(entry, "io.containerd.image.name"))
        .collect();
    assert_eq!(names, ["example.com:5000/a/program:1", "b/program:2"]);
    let tags: Vec<_> = named
        .iter()
        .map(|entry| annotation(entry, "org.opencontainers.image.ref.name"))
        .collect();
    assert_eq!(tags, ["1", "2"]);
    assert!(named.iter().all(|entry| entry["digest"] == digest));

    let manifest = json(blob(&files, &named[0]));
    let config = json(blob(&files, &manifest["config"]));
    assert_eq!(
        config["config"]["Entrypoint"],
        json!(["/usr/local/bin/program"])
    );
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Env"], json!(["PATH=/usr/local/bin"]));
    assert_eq!(config["config"]["Labels"], json!({"title": "a program"}));
    assert_eq!(config["config"]["ExposedPorts"], json!({"80/tcp": {}}));
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        manifest["layers"][0]["digest"]
    );

    let layer = blob(&files, &manifest["layers"][0]);
    let mut tar = tar::Archive::new(layer);
    let paths: Vec<String> = tar
        .entries()
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(
        paths,
        [
            "tmp/",
            "usr/",
            "usr/local/",
            "usr/local/bin/",
            "usr/local/bin/program"
        ]
    );

    // The manifest for older engines refers to the same blobs.
    let older = &json(&files["manifest.json"])[0];
    assert_eq!(older["RepoTags"], json!(names));
    assert_eq!(json(&files[older["Config"].as_str().unwrap()]), config);
    assert_eq!(files[older["Layers"][0].as_str().unwrap()], layer);
}

#[test]
fn the_same_files_produce_the_same_bytes() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let digests = [here.path(), there.path()].map(|dir| {
        let archive = dir.join("a.tar");
        let image = image(dir);
        let old = fs::File::options()
            .write(true)
            .open(dir.join("program"))
            .unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
        image.write(&archive).unwrap()
    });
    assert_eq!(digests[0], digests[1]);
    let bytes = |dir: &Path| fs::read(dir.join("a.tar")).unwrap();
    assert_eq!(bytes(here.path()), bytes(there.path()));

    fs::write(there.path().join("program"), "another program").unwrap();
    let other = image(here.path()).run;
    let mut changed = image(here.path());
    changed.run = Run {
        user: String::new(),
        ..other
    };
    assert_ne!(
        changed.write(&there.path().join("b.tar")).unwrap(),
        digests[0]
    );
}

#[test]
fn a_failed_archive_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    fs::remove_file(dir.path().join("program")).unwrap();
    let out = dir.path().join("out");
    assert!(image.write(&out.join("a.tar")).is_err());
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}

#[test]
fn a_port_is_not_a_tag() {
    assert_eq!(tag("example.com:5000/a"), "latest");
    assert_eq!(tag("example.com:5000/a:v1"), "v1");
}
