//! Models in several files.

use std::path::{Path, PathBuf};

use rml::model::Gguf;
use rml::model::gguf::{TensorType, Value, Writer};

use crate::directory;

fn name(number: usize) -> String {
    format!("model-{number:05}-of-00003.gguf")
}

/// Writes part `number` (from 1) of 3, with one tensor that holds its number.
fn write_part(directory: &Path, number: usize, tensor: &str, change: impl FnOnce(&mut Writer)) -> PathBuf {
    let mut writer = Writer::new();
    if number == 1 {
        writer.set("general.architecture", Value::String("llama".into()));
    }
    writer.set("split.no", Value::U16(number as u16 - 1));
    writer.set("split.count", Value::U16(3));
    writer.set("split.tensors.count", Value::I32(3));
    writer.tensor(tensor, TensorType(0), &[1]).unwrap();
    change(&mut writer);
    let path = directory.join(name(number));
    let mut file = std::fs::File::create(&path).unwrap();
    let fill = |_, out: &mut Vec<u8>| {
        out.extend((number as f32).to_le_bytes());
        Ok(())
    };
    writer.write(&path, &mut file, fill).unwrap();
    path
}

fn write_set(directory: &Path) -> [PathBuf; 3] {
    [1, 2, 3].map(|i| write_part(directory, i, &format!("t{i}"), |_| {}))
}

#[test]
fn any_part_opens_the_whole() {
    let paths = write_set(&directory("whole"));
    for path in &paths {
        let file = Gguf::open(path).unwrap();
        assert_eq!((file.n_files(), file.path()), (3, paths[0].as_path()));
        assert_eq!(file.metadata().str("general.architecture").unwrap(), Some("llama"));
        for i in [1, 2, 3] {
            let tensor = file.tensor(&format!("t{i}")).unwrap();
            assert_eq!((tensor.shard, file.bytes(tensor)), (i - 1, &(i as f32).to_le_bytes()[..]));
            file.release(tensor);
        }
        let sizes = paths.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum::<u64>();
        assert_eq!(file.file_bytes() as u64, sizes);
    }
}

#[test]
fn a_missing_part_is_named() {
    for missing in [1, 2, 3] {
        let directory = directory(&format!("missing-{missing}"));
        let paths = write_set(&directory);
        std::fs::remove_file(&paths[missing - 1]).unwrap();
        let error = Gguf::open(&paths[missing % 3]).unwrap_err().to_string();
        assert!(error.contains(&name(missing)) && error.contains(&format!("part {missing} of 3")), "{error}");
        assert!(error.contains("fetch it into the same directory"), "{error}");
    }
}

#[test]
fn a_set_that_does_not_fit_together_is_refused() {
    let open = |directory: &Path| Gguf::open(&directory.join(name(1))).unwrap_err().to_string();

    let renamed = directory("renamed");
    let paths = write_set(&renamed);
    let other = renamed.join("other.gguf");
    std::fs::rename(&paths[1], &other).unwrap();
    let error = Gguf::open(&other).unwrap_err().to_string();
    assert!(error.contains("name it NAME-00002-of-00003.gguf"), "{error}");

    let swapped = directory("swapped");
    let paths = write_set(&swapped);
    std::fs::copy(&paths[2], &paths[1]).unwrap();
    let error = open(&swapped);
    assert!(error.contains(&name(2)) && error.contains("say otherwise"), "{error}");

    let twice = directory("twice");
    write_set(&twice);
    write_part(&twice, 3, "t1", |_| {});
    let error = open(&twice);
    assert!(error.contains(&name(3)) && error.contains("tensor t1 stands in an earlier part"), "{error}");

    let count = directory("count");
    write_set(&count);
    write_part(&count, 1, "t1", |writer| writer.set("split.tensors.count", Value::I32(4)));
    let error = open(&count);
    assert!(error.contains("split.tensors.count is 4") && error.contains("hold 3"), "{error}");

    let number = directory("number");
    write_set(&number);
    write_part(&number, 1, "t1", |writer| writer.set("split.no", Value::U16(3)));
    assert!(open(&number).contains("split.no is 3, but split.count is 3"));

    let short = directory("short-part");
    let paths = write_set(&short);
    let bytes = std::fs::read(&paths[2]).unwrap();
    std::fs::write(&paths[2], &bytes[..bytes.len() - 32]).unwrap();
    let error = open(&short);
    assert!(error.contains(&name(3)) && error.contains("the download is incomplete"), "{error}");
}
