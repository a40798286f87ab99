//! The program as people run it, without a Python: nodes start, answer and stop.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing fails")]

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder for sessions; what runs in it is stopped at the end.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let name = format!("hoplo-command-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn hoplo(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hoplo"));
        command.args(arguments).env("HOPLO_TMPDIR", &self.0).output().unwrap()
    }

    fn told(&self, arguments: &[&str]) -> String {
        let done = self.hoplo(arguments);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let done = self.hoplo(arguments);
        assert!(!done.status.success() && done.stdout.is_empty(), "{arguments:?}");
        String::from_utf8(done.stderr).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hoplo(&["stop", "--all"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn where_nothing_runs_one_line_says_what_to_do() {
    let place = Place::new("nothing");
    for arguments in [&["status"][..], &["list", "tasks"], &["why", "task:1-1"], &["logs"]] {
        let error = place.refused(arguments);
        assert_eq!(error.lines().count(), 1);
        assert!(error.contains("hoplo start --head"), "{error}");
    }
    assert_eq!(place.refused(&["stop"]), "hoplo: no node of yours runs here\n");
    assert!(place.told(&["version"]).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_head_starts_answers_and_stops() {
    let place = Place::new("head");
    let start = ["start", "--head", "--python", "/bin/false", "--num-cpus", "3", "--resources"];
    let told = place.told(&[&start[..], &[r#"{"tpu": 2}"#]].concat());
    assert!(told.contains("auto") && told.contains("hoplo stop"), "{told}");
    assert!(place.refused(&["start", "--head"]).contains("hoplo stop"));

    let status: serde_json::Value =
        serde_json::from_str(&place.told(&["status", "--json"])).unwrap();
    assert_eq!(
        (&status["resources"]["CPU"], &status["resources"]["tpu"]),
        (&3.0.into(), &2.0.into())
    );
    assert!(place.told(&["status"]).contains("CPU      0 of 3 reserved"));
    assert!(place.refused(&["why", "task:1-1"]).contains("nobody here knows task:1-1"));
    assert!(place.refused(&["why", "nonsense"]).contains("nonsense"));
    assert!(place.told(&["list", "actors"]).starts_with("ID  CLASS_NAME"));
    assert!(place.told(&["logs"]).contains("the zygote died"));

    let session = PathBuf::from(status["session_dir"].as_str().unwrap());
    assert!(place.told(&["stop"]).starts_with("stopped"));
    assert!(!session.join("sock").exists() && !place.0.join("current").exists());
}

#[test]
fn a_node_that_cannot_be_says_why() {
    let place = Place::new("cannot");
    let error = place.refused(&["start", "--head", "--python", "/bin/false", "--num-cpus", "-1"]);
    assert!(error.contains("resource CPU is -1"), "{error}");
    assert!(place.refused(&["start"]).contains("--head"));
}

#[test]
fn a_session_folder_of_ones_own_is_found_as_well() {
    let place = Place::new("own");
    let folder = place.0.join("deep").join("x".repeat(120));
    let folder = folder.to_str().unwrap();
    place.told(&["start", "--head", "--python", "/bin/false", "--session-dir", folder]);
    assert!(place.told(&["status"]).contains(folder));
    assert!(place.told(&["stop"]).contains(folder));
}

#[test]
fn a_folder_of_the_users_own_is_refused_by_the_option_that_names_it() {
    let place = Place::new("named");
    let project = place.0.join("project");
    std::fs::create_dir_all(project.join("control")).unwrap();
    std::fs::write(project.join("lock"), "mine").unwrap();
    let folder = project.to_str().unwrap();
    for block in [&[][..], &["--block"]] {
        let start = ["start", "--head", "--python", "/bin/false", "--session-dir", folder];
        let start = [&start[..], block].concat();
        let error = String::from_utf8(place.hoplo(&start).stderr).unwrap();
        assert!(error.contains("project is not empty"), "{error}");
    }
    assert_eq!(std::fs::read(project.join("lock")).unwrap(), b"mine");
    let file = project.join("lock");
    let file = file.to_str().unwrap();
    let start = ["start", "--head", "--python", "/bin/false", "--session-dir", file];
    let errors = [place.refused(&start), place.refused(&["status", "--session", "/tmp"])];
    for (error, option) in errors.iter().zip(["--session-dir", "--session the folder of"]) {
        assert!(error.contains(option), "{error}");
        assert!(!error.contains("remove") && !error.contains("HOPLO_TMPDIR"), "{error}");
    }
}

#[test]
fn a_head_that_was_killed_is_gone_on_with_and_stop_ends_it_for_good() {
    let place = Place::new("killed");
    let start = ["start", "--head", "--python", "/bin/false"];
    let status = || -> serde_json::Value {
        serde_json::from_str(&place.told(&["status", "--json"])).unwrap()
    };
    let kill = |signal: &str, pid: &serde_json::Value| {
        let pid = pid.as_u64().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while place.hoplo(&["status"]).status.success() {
            assert!(std::time::Instant::now() < deadline, "it ends");
        }
    };
    assert!(!place.told(&start).contains("goes on"));
    let first = status();
    kill("-KILL", &first["pid"]);
    assert!(place.told(&start).contains("goes on with the tables"));
    let second = status();
    assert_eq!(first["session_dir"], second["session_dir"]);
    assert_ne!(first["pid"], second["pid"]);
    // An orderly end that nobody wanted as the end of the cluster: a reboot, say.
    kill("-TERM", &second["pid"]);
    assert!(place.told(&start).contains("goes on with the tables"));
    place.told(&["stop"]);
    assert!(!place.told(&start).contains("goes on"));
    kill("-KILL", &status()["pid"]);
    assert!(place.told(&["stop"]).contains("ended the cluster of a head that died"));
    assert_eq!(place.refused(&["stop"]), "hoplo: no node of yours runs here\n");
    assert!(!place.told(&start).contains("goes on"));
}

#[test]
fn an_object_store_that_cannot_be_is_refused_before_anything_is_made() {
    let place = Place::new("absurd");
    for bytes in ["10", "900T"] {
        let start = ["start", "--head", "--python", "/bin/true", "--object-store-memory", bytes];
        let refused = place.refused(&start);
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert!(
            refused.contains("--object-store-memory") && refused.contains("from 1.0 MiB to "),
            "{refused}"
        );
    }
    assert!(!place.0.exists());
}

#[test]
fn a_node_that_joined_was_taken_for_a_head_or_for_one_that_a_program_started() {
    let (there, here) = (Place::new("their-head"), Place::new("joined"));
    std::fs::create_dir_all(&there.0).unwrap();
    std::fs::set_permissions(&there.0, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let token = there.0.join("token").display().to_string();
    let python = ["--python", "/bin/true", "--num-cpus", "1", "--token-file", &token];
    let python = [&python[..], &["--object-store-memory", "100M"]].concat();
    let told = there.told(&[&["start", "--head", "--port", "0"], &python[..]].concat());
    let address = told.split("--address ").nth(1).unwrap().split(' ').next().unwrap();
    for _ in 0..2 {
        here.told(&[&["start", "--address", address], &python[..]].concat());
    }
    let refused = here.refused(&[&["start", "--head", "--port", "0"], &python[..]].concat());
    assert!(
        refused.starts_with("hoplo: a node that joined another head runs here (pid "),
        "{refused}"
    );
    assert!(refused.contains("`hoplo stop`") && refused.contains("HOPLO_TMPDIR"), "{refused}");
    let refused = there.refused(&[&["start", "--head", "--port", "0"], &python[..]].concat());
    assert!(refused.starts_with("hoplo: a head runs already (pid "), "{refused}");
    here.told(&["stop"]);
    let refused = here.refused(&["stop"]);
    assert!(
        refused.starts_with(
            "hoplo: no head runs here, but 1 node that joined another head (`hoplo stop --session "
        ),
        "{refused}"
    );
    let session = refused.split("--session ").nth(1).unwrap().split('`').next().unwrap();
    here.told(&["stop", "--session", session]);
    assert_eq!(here.refused(&["stop"]), "hoplo: no node of yours runs here\n");
}
