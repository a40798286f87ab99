use super::*;
use crate::names::MARK;

/// All that is in it, with what the files say.
fn contents(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for name in names(folder) {
        let path = folder.join(name);
        if path.is_dir() {
            found.push((path.clone(), String::new()));
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn a_folder_of_the_users_that_was_named_for_a_session_lost_its_files() {
    let files = ["notes", "lock", "sock", "spill/data", "control/tables", "logs/app.log"];
    let taken: Vec<Vec<&str>> =
        files.iter().map(|name| vec![*name]).chain([files.into()]).collect();
    for (nth, files) in taken.iter().enumerate() {
        let room = Room::new(&format!("project-{nth}"));
        let project = room.0.join("project");
        for name in files {
            let path = project.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "mine").unwrap();
        }
        mode(&project, 0o700);
        let before = contents(&project);
        let error = OwnSessionFolder::at(&project, Some(room.base())).unwrap_err().to_string();
        assert!(error.contains("is not empty") && error.contains("--session-dir"), "{error}");
        assert_eq!(contents(&project), before);
    }
    // Nor a folder, or a file, that holds nothing.
    for name in ["lock", "logs"] {
        let room = Room::new(&format!("empty-{name}"));
        let project = room.0.join("project");
        fs::create_dir(&project).unwrap();
        mode(&project, 0o700);
        if name == "logs" {
            fs::create_dir(project.join(name))
        } else {
            fs::write(project.join(name), "")
        }
        .unwrap();
        OwnSessionFolder::at(&project, None).unwrap_err();
        assert_eq!(names(&project), [name]);
    }
}

#[test]
fn an_empty_folder_that_was_named_for_a_session_went_with_it() {
    let room = Room::new("given");
    for (name, is_there) in [("given", true), ("made", false)] {
        let path = room.0.join(name);
        if is_there {
            fs::create_dir(&path).unwrap();
            mode(&path, 0o700);
        }
        // The second one goes on in the folder of the first, which was killed.
        drop(OwnSessionFolder::at(&path, Some(room.base())).unwrap());
        let head = OwnSessionFolder::at(&path, Some(room.base())).unwrap();
        fs::create_dir(head.control()).unwrap();
        head.close(true);
        assert_eq!(names(&path), [CONTROL, MARK]);
        let again = OwnSessionFolder::at(&path, None).unwrap();
        again.close(false);
        assert_eq!(path.exists(), is_there, "what was there stays, and what was made goes");
    }
    assert_eq!(names(&room.0.join("given")), [""; 0]);
}

#[test]
fn a_folder_that_is_none_was_refused_with_the_advice_to_remove_it() {
    let room = Room::new("advice");
    let file = room.0.join("passwd");
    fs::write(&file, "mine").unwrap();
    let named = OwnSessionFolder::at(&file, None).unwrap_err().to_string();
    assert!(named.ends_with("it is no folder: name another one by --session-dir"), "{named}");
    let asked = SessionFolder::open(&file).unwrap_err().to_string();
    assert!(asked.ends_with("it is no folder"), "{asked}");
    let based = Places::only(file).make().unwrap_err().to_string();
    assert!(based.contains("HOPLO_TMPDIR"), "{based}");
    for text in [named, asked, based] {
        assert!(!text.contains("remove"), "{text}");
    }
}
