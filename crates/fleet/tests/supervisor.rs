//! The supervisor with scripts in Envoy's place: restarts, ends, logs, and the death of the parent.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, Level, ProcessEvent, ProcessEvents, RestartBackoff, Supervisor,
    SupervisorConfig,
};
use sesame_model::FleetId;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs until it is killed. `exec`, so that no grandchild is left.
const SLEEP: &str = "exec sleep 1000";

fn fleet(id: &str) -> FleetId {
    id.parse().unwrap_or_else(|_| FleetId::of_gateway("ns", id))
}

struct Rig {
    supervisor: Supervisor,
    events: ProcessEvents,
    dir: TempDir,
}

fn rig(change: impl FnOnce(&mut SupervisorConfig)) -> Rig {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-envoy.sh");
    let mut config = SupervisorConfig::new(fake, dir.path().join("run"));
    config.kill_after = PATIENCE;
    change(&mut config);
    let (supervisor, events) = Supervisor::new(config).expect("a supervisor");
    Rig {
        supervisor,
        events,
        dir,
    }
}

impl Rig {
    fn ensure(&self, id: &str, script: &str) {
        self.supervisor.ensure(EnvoySpec {
            fleet: fleet(id),
            bootstrap: script.as_bytes().to_vec(),
            format: BootstrapFormat::Yaml,
            concurrency: Some(2),
            admin_socket: self.supervisor.dir(&fleet(id)).admin_socket(),
        });
    }

    async fn next(&mut self) -> ProcessEvent {
        timeout(PATIENCE, self.events.recv())
            .await
            .expect("an event in time")
            .expect("an event")
    }

    async fn started(&mut self) -> (u32, u32) {
        match self.next().await {
            ProcessEvent::Started { pid, attempt, .. } => (pid, attempt),
            other => panic!("not started: {other:?}"),
        }
    }

    async fn line(&mut self) -> (Level, String, String) {
        match self.next().await {
            ProcessEvent::Log { line, .. } => (line.level, line.component, line.message),
            other => panic!("not a line: {other:?}"),
        }
    }

    /// Status and pause.
    async fn exited(&mut self) -> (std::process::ExitStatus, Option<Duration>) {
        match self.next().await {
            ProcessEvent::Exited {
                status, restart_in, ..
            } => (status, restart_in),
            other => panic!("not exited: {other:?}"),
        }
    }

    async fn stop(&self, id: &str) {
        timeout(PATIENCE * 2, self.supervisor.stop(&fleet(id)))
            .await
            .expect("stopped in time");
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(pid_of(pid), signal).expect("a process to signal");
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process number"))
}

/// Whether the process runs. A zombie doesn't.
fn alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.contains(") Z "),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => kill(pid_of(pid), None).is_ok(),
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, waiting).await.is_ok(), "never {what}");
}

#[tokio::test]
async fn output_becomes_events() {
    let mut rig = rig(|_| {});
    rig.ensure(
        "f",
        "echo '[error][config] no such cluster' >&2; echo odd >&2; echo access; exec sleep 1000",
    );
    rig.started().await;
    let mut lines = vec![rig.line().await, rig.line().await, rig.line().await];
    // Two pipes: their order among each other is not known.
    lines.sort();
    assert_eq!(
        lines,
        [
            (Level::Info, "stdout".to_owned(), "access".to_owned()),
            (Level::Warning, String::new(), "odd".to_owned()),
            (
                Level::Error,
                "config".to_owned(),
                "no such cluster".to_owned()
            ),
        ]
    );
}

#[tokio::test]
async fn envoy_gets_its_flags_and_private_files() {
    let mut rig = rig(|config| config.drain = Duration::from_millis(1500));
    rig.ensure(
        "f",
        "stat -c %a \"$2\" . 2>&1; echo \"$@\"; exec sleep 1000",
    );
    rig.started().await;
    assert_eq!(rig.line().await.2, "600");
    assert_eq!(rig.line().await.2, "700");
    let (_, _, flags) = rig.line().await;
    for flag in [
        "/bootstrap.yaml --disable-hot-restart",
        "--log-level warning",
        "--concurrency 2",
        "--drain-time-s 2",
    ] {
        assert!(flags.contains(flag), "{flag} is not in {flags}");
    }
}

#[tokio::test]
async fn a_killed_process_is_replaced_at_once() {
    let mut rig = rig(|_| {});
    rig.ensure("f", SLEEP);
    let (first, attempt) = rig.started().await;
    assert_eq!(attempt, 1);
    signal(first, Signal::SIGKILL);
    let (status, pause) = rig.exited().await;
    assert_eq!(status.signal(), Some(9));
    assert_eq!(pause, Some(Duration::ZERO));
    let (second, attempt) = rig.started().await;
    assert_eq!(attempt, 2);
    assert!(second != first && alive(second));
}

#[tokio::test]
async fn one_that_keeps_ending_is_restarted_with_growing_pauses() {
    let mut rig = rig(|config| {
        config.backoff = RestartBackoff {
            min: Duration::from_millis(8),
            max: Duration::from_millis(30),
            stable_after: PATIENCE,
        };
    });
    rig.ensure("f", "exit 3");
    for (attempt, longest) in (1..).zip([0, 8, 16, 30, 30]) {
        assert_eq!(rig.started().await.1, attempt);
        let (status, pause) = rig.exited().await;
        assert_eq!(status.code(), Some(3));
        let pause = pause.expect("a restart");
        let longest = Duration::from_millis(longest);
        assert!(pause <= longest && pause >= longest / 2, "{pause:?}");
    }
    // A stop during a delay takes effect at once.
    rig.stop("f").await;
}

#[tokio::test]
async fn an_envoy_that_is_not_there_is_reported_and_tried_again() {
    let mut rig = rig(|config| config.envoy = "/nonexistent/envoy".into());
    rig.ensure("f", "");
    for _ in 0..2 {
        let ProcessEvent::Failed {
            fleet: of, message, ..
        } = rig.next().await
        else {
            panic!("no failure");
        };
        assert_eq!(of, fleet("f"));
        assert!(
            message.starts_with("cannot start /nonexistent/envoy: "),
            "{message}"
        );
    }
}

#[tokio::test]
async fn stop_ends_the_process_and_leaves_no_file() {
    let mut rig = rig(|_| {});
    rig.ensure(
        "f",
        "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done",
    );
    let (pid, _) = rig.started().await;
    assert_eq!(rig.line().await.2, "up");
    let dir = rig.supervisor.dir(&fleet("f")).path().to_owned();
    assert!(dir.exists());
    rig.stop("f").await;
    assert!(!alive(pid) && !dir.exists());
    assert_eq!(rig.line().await.2, "bye");
    let (status, pause) = rig.exited().await;
    assert_eq!((status.code(), pause), (Some(5), None));
    // Stopping an unknown fleet is not an error, and a stopped fleet can start again.
    rig.stop("f").await;
    rig.ensure("f", SLEEP);
    assert_eq!(rig.started().await.1, 1);
}

#[tokio::test]
async fn one_that_ignores_the_request_to_end_is_killed() {
    let mut rig = rig(|config| config.kill_after = Duration::from_millis(50));
    rig.ensure("f", "trap '' TERM; echo up; while :; do sleep 0.01; done");
    let (pid, _) = rig.started().await;
    assert_eq!(rig.line().await.2, "up");
    rig.stop("f").await;
    assert!(!alive(pid));
    assert_eq!(rig.exited().await.0.signal(), Some(9));
}

#[tokio::test]
async fn the_same_again_changes_nothing_and_another_bootstrap_restarts() {
    let mut rig = rig(|_| {});
    rig.ensure("f", SLEEP);
    let (first, _) = rig.started().await;
    rig.ensure("f", SLEEP);
    rig.ensure("f", "echo new; exec sleep 1000");
    let (status, pause) = rig.exited().await;
    assert_eq!((status.signal(), pause), (Some(15), None));
    let (second, attempt) = rig.started().await;
    assert_eq!(attempt, 1);
    assert_eq!(rig.line().await.2, "new");
    assert!(!alive(first) && alive(second));
}

#[tokio::test]
async fn wishes_made_during_a_stop_come_after_it() {
    let mut rig = rig(|_| {});
    rig.ensure("f", SLEEP);
    let (first, _) = rig.started().await;
    let wishes = async {
        rig.ensure("f", "exit 1");
        rig.ensure("f", SLEEP);
        rig.stop("f").await;
        assert!(!rig.supervisor.dir(&fleet("f")).path().exists());
        rig.ensure("f", SLEEP);
    };
    tokio::join!(rig.stop("f"), wishes);
    assert_eq!(rig.exited().await.1, None);
    let (second, attempt) = rig.started().await;
    assert_eq!(attempt, 1);
    assert!(!alive(first) && alive(second));
}

#[tokio::test]
async fn a_stop_is_ordered_by_its_call() {
    let mut rig = rig(|_| {});
    rig.ensure("f", SLEEP);
    let (first, _) = rig.started().await;
    let stopped = rig.supervisor.stop(&fleet("f"));
    rig.ensure("f", SLEEP);
    // Polled only now, and it still ends the first process.
    timeout(PATIENCE, stopped).await.expect("stopped in time");
    assert_eq!(rig.exited().await.1, None);
    let (second, _) = rig.started().await;
    assert!(!alive(first) && alive(second));
    // The future need not be polled at all.
    drop(rig.supervisor.stop(&fleet("f")));
    assert_eq!(rig.exited().await.1, None);
}

#[tokio::test]
async fn fleets_do_not_touch_each_other() {
    let mut rig = rig(|_| {});
    rig.ensure("a/b-c", "echo one; exec sleep 1000");
    rig.started().await;
    assert_eq!(rig.line().await.2, "one");
    rig.ensure("a-b/c", "exit 1");
    rig.started().await;
    rig.exited().await;
    rig.stop("a-b/c").await;
    while let Ok(Some(event)) = timeout(Duration::from_millis(10), rig.events.recv()).await {
        assert_eq!(*event.fleet(), fleet("a-b/c"), "{event:?}");
    }
    assert!(rig.supervisor.dir(&fleet("a/b-c")).path().exists());
}

#[tokio::test]
async fn shutdown_ends_all_at_the_same_time_and_takes_no_more() {
    let mut rig = rig(|_| {});
    let meeting = rig.dir.path().display().to_string();
    for id in ["a", "b", "c"] {
        // Ends only once all three have received SIGTERM.
        rig.ensure(
            id,
            &format!(
                "trap 'touch {meeting}/{id}; \
                   until [ -e {meeting}/a -a -e {meeting}/b -a -e {meeting}/c ]; do sleep 0.01; done; exit 0' TERM
                 echo up; while :; do sleep 0.01; done"
            ),
        );
        rig.started().await;
        assert_eq!(rig.line().await.2, "up");
    }
    timeout(PATIENCE * 2, rig.supervisor.shutdown())
        .await
        .expect("shut down in time");
    for _ in 0..3 {
        assert_eq!(rig.exited().await.0.code(), Some(0));
    }
    rig.ensure("d", SLEEP);
    assert!(!rig.supervisor.dir(&fleet("d")).path().exists());
    let Rig {
        supervisor,
        mut events,
        ..
    } = rig;
    drop(supervisor);
    assert!(events.recv().await.is_none());
}

#[tokio::test]
async fn an_envoy_that_talks_to_nobody_is_not_held_up() {
    let mut rig = rig(|_| {});
    let done = rig.dir.path().join("done");
    // 4 MB: far more than a pipe holds.
    let script = format!(
        "i=0; while [ $i -lt 40000 ]; do echo '[info][main] {filler}' >&2; i=$((i+1)); done; touch {done}; {SLEEP}",
        filler = "x".repeat(100),
        done = done.display(),
    );
    rig.ensure("f", &script);
    until("done with printing", || done.exists()).await;
    rig.started().await;
    assert_eq!(rig.line().await.2.len(), 100);
}

#[tokio::test]
async fn without_its_supervisor_a_process_ends() {
    let mut rig = rig(|_| {});
    rig.ensure("f", "echo up; exec sleep 1000");
    let (pid, _) = rig.started().await;
    assert_eq!(rig.line().await.2, "up");
    let Rig {
        supervisor,
        mut events,
        dir: _dir,
    } = rig;
    drop(supervisor);
    while timeout(PATIENCE, events.recv())
        .await
        .expect("the end of all events")
        .is_some()
    {}
    assert!(!alive(pid));
}

/// Runs in two roles: the test starts its own executable again, as the parent that is killed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_killed_parent_takes_its_processes_along() {
    const TOLD: &str = "SESAME_TEST_PID_FILE";
    if let Some(file) = std::env::var_os(TOLD) {
        let mut rig = rig(|_| {});
        rig.ensure("f", SLEEP);
        let (pid, _) = rig.started().await;
        write_whole(Path::new(&file), &pid.to_string());
        return std::future::pending().await;
    }

    let dir = tempfile::tempdir().expect("a folder for the test");
    let file = dir.path().join("pid");
    let mut parent = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_killed_parent_takes_its_processes_along"])
        .env(TOLD, &file)
        // The rig's folder stays behind when its process is killed: it lies in ours.
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program again");
    until("started", || file.exists()).await;
    let pid: u32 = fs::read_to_string(&file)
        .expect("a file")
        .parse()
        .expect("a process number");
    assert!(alive(pid));
    parent.kill().expect("a parent to kill");
    parent.wait().expect("the parent's end");
    until("dead", || !alive(pid)).await;
}

#[cfg(target_os = "linux")]
fn write_whole(path: &Path, text: &str) {
    let partial = path.with_extension("partial");
    fs::write(&partial, text).expect("a file");
    fs::rename(&partial, path).expect("a file");
}
