//! The workflows of `docs/workflows`, run as they are written.
//!
//! In: a scene without Sesame. Out: the same scene; requests were answered, without failures during the upgrade.

use std::env;
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::{NamedTempFile, TempDir};

use super::installs;
use super::load::Load;
use super::replicas;
use super::scene::Scene;
use super::shop;
use crate::deploy;
use sesame_tools::cargo;
use sesame_tools::wheel::last_lines;

/// The image of the next release, as in the pages.
const NEXT: &str = "ghcr.io/projectsesame/sesame:0.2.0";

/// The sections of a page.
const INSTALL: &str = "Install";
const SERVE: &str = "Serve requests";
const UPGRADE: &str = "Upgrade";
const REMOVE: &str = "Remove";

/// The prefix of the tests' names; the rest is the page's.
const PREFIX: &str = "workflow-";

/// The option of curl for a host, in the pages.
const HOST: &str = "--header 'Host: ";

/// The line that the script for [`SERVE`] prints last.
const ADDRESS: &str = "address=";

/// Runs the test with this name.
pub(super) fn workflow(scene: &Scene, test: &str) -> Result<String> {
    let page = Page::read(test.strip_prefix(PREFIX).context("not a workflow")?)?;
    let shell = Shell::new(scene)?;
    replicas::load_next(scene, NEXT)?;
    let before = installs::clean(scene)?;
    let audited = fs::metadata(scene.cluster.audit_log())?.len();
    let done = used(scene, &page, &shell);
    if done.is_err() {
        // Before the removal, which the next test needs.
        eprintln!("{}", super::diagnostics(scene));
    }
    let removed = shell.run(page.script(REMOVE)?);
    let figures = done?;
    removed.context(REMOVE)?;
    installs::nothing_left(scene, &before)?;
    permissions_suffice(scene, &page, audited)?;
    Ok(figures)
}

/// Compares the permissions of the page's flavour with the requests in the audit log after this position.
fn permissions_suffice(scene: &Scene, page: &Page, position: u64) -> Result<()> {
    let mode = ["operator", "unmanaged"]
        .into_iter()
        .find(|mode| page.0.contains(&format!("--set mode={mode}")))
        .unwrap_or("managed");
    let mut log = File::open(scene.cluster.audit_log())?;
    log.seek(SeekFrom::Start(position))?;
    let mut part = NamedTempFile::new().context("cannot create a file for requests")?;
    io::copy(&mut log, &mut part)?;
    let objects = deploy::rendered(&[&format!("mode={mode}")])?;
    let verdict = deploy::rbac::compare_rendered(&objects, &[part.path().to_owned()])?;
    ensure!(verdict.suffices(), "{verdict}");
    Ok(())
}

/// Installs Sesame, sends requests, and upgrades Sesame during requests.
fn used(scene: &Scene, page: &Page, shell: &Shell<'_>) -> Result<String> {
    let begun = Instant::now();
    shell.run(page.script(INSTALL)?).context(INSTALL)?;
    let script = format!(
        "{}\nprintf '\\n{ADDRESS}%s\\n' \"$address\"\n",
        page.script(SERVE)?
    );
    let printed = shell.run(&script).context(SERVE)?;
    let address = printed
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(ADDRESS));
    let address = address.context("the script printed no address")?;
    let address: IpAddr = address
        .parse()
        .with_context(|| format!("invalid address {address:?}"))?;
    let answered = begun.elapsed();

    let hosts = page.hosts();
    ensure!(!hosts.is_empty(), "the page has no request with a host");
    let requests = hosts
        .iter()
        .map(|host| shop::request(SocketAddr::new(address, 80), host));
    let load = Load::start(&scene.network, requests.collect());
    let begun = Instant::now();
    let upgraded = page.script(UPGRADE).and_then(|script| shell.run(script));
    let tally = load.stop();
    upgraded.context(UPGRADE)?;
    Ok(format!(
        "first response after {:.0} s; upgraded in {:.0} s, {}",
        answered.as_secs_f32(),
        begun.elapsed().as_secs_f32(),
        tally?
    ))
}

/// A page of `docs/workflows`.
struct Page(String);

impl Page {
    fn read(name: &str) -> Result<Self> {
        let path = cargo::root().join(format!("docs/workflows/{name}.md"));
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self(text))
    }

    /// The script of a section.
    fn script(&self, section: &str) -> Result<&str> {
        let find = || {
            let (_, rest) = self.0.split_once(&format!("\n## {section}\n"))?;
            let (text, _) = rest.split_once("\n## ").unwrap_or((rest, ""));
            let (_, rest) = text.split_once("```sh\n")?;
            rest.split_once("\n```").map(|(script, _)| script)
        };
        find().with_context(|| format!("the section {section:?} has no script"))
    }

    /// The hosts of all requests.
    fn hosts(&self) -> Vec<&str> {
        let options = self.0.split(HOST).skip(1);
        let hosts = options.filter_map(|rest| rest.split_once('\''));
        hosts.map(|(host, _)| host).collect()
    }
}

/// A shell in the cluster's network, with the pages' programs.
struct Shell<'a> {
    scene: &'a Scene,
    /// Links to the programs, and Helm's settings.
    folder: TempDir,
}

impl<'a> Shell<'a> {
    fn new(scene: &'a Scene) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for programs")?;
        let programs = [
            ("kubectl", scene.cluster.kubectl_path()),
            ("helm", deploy::helm::obtain()?),
            (
                "sesame",
                PathBuf::from(cargo::built("release", "sesame").get_program()),
            ),
        ];
        for (name, program) in programs {
            let program = std::path::absolute(program)?;
            symlink(program, folder.path().join(name)).context("cannot link a program")?;
        }
        Ok(Self { scene, folder })
    }

    /// Runs a script in the repository's root, and returns its output.
    fn run(&self, script: &str) -> Result<String> {
        let folder = self.folder.path();
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [folder.to_owned()]
            .into_iter()
            .chain(env::split_paths(&path));
        let path = env::join_paths(folders).context("a folder's name contains a colon")?;
        let mut command = self.scene.cluster.command(Path::new("sh"));
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, folder.join("settings"));
        }
        let output = command
            .args(["-eu", "-c", script])
            .env("PATH", path)
            .current_dir(cargo::root())
            .output()
            .context("cannot run the shell")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "the script failed: {}\nIt printed: {}",
            last_lines(&output.stderr),
            last_lines(&output.stdout)
        );
        Ok(printed)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::ValueEnum as _;

    use super::super::Test;
    use super::*;

    const SECTIONS: [&str; 4] = [INSTALL, SERVE, UPGRADE, REMOVE];

    #[test]
    fn each_page_has_a_test_and_complete_scripts() {
        let names = Test::value_variants().iter().map(|test| test.name());
        let mut tests: Vec<String> = names
            .filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned))
            .collect();
        let folder = fs::read_dir(cargo::root().join("docs/workflows")).unwrap();
        let files = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut pages: Vec<String> = files
            .map(|name| name.strip_suffix(".md").unwrap().to_owned())
            .collect();
        tests.sort();
        pages.sort();
        assert_eq!(tests, pages);
        let index = fs::read_to_string(cargo::root().join("docs/workflows.md")).unwrap();
        for name in pages {
            assert!(index.contains(&format!("(workflows/{name}.md)")), "{name}");
            let page = Page::read(&name).unwrap();
            assert!(!page.hosts().is_empty(), "{name}");
            assert!(
                page.script(SERVE).unwrap().contains("\naddress=$("),
                "{name}"
            );
            assert!(page.script(UPGRADE).unwrap().contains(NEXT), "{name}");
            for section in SECTIONS {
                let script = page.script(section).unwrap();
                let checked = Command::new("sh").args(["-n", "-c", script]).status();
                assert!(checked.unwrap().success(), "{name}: {section}");
            }
        }
    }
}
