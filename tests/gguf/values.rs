//! Values and tensors, as the Python package writes them; and as the writer here writes them, read again.

use std::io::Write;

use rml::model::gguf::{Array, Strings, TensorType, Value, Writer};

use crate::{EVERY_TYPE, read};

fn expected() -> Vec<(&'static str, Value)> {
    let ints = |a: &[i32]| Array::I32(a.to_vec());
    vec![
        ("general.architecture", Value::String("llama".into())),
        ("test.u8", Value::U8(200)),
        ("test.i8", Value::I8(-100)),
        ("test.u16", Value::U16(60_000)),
        ("test.i16", Value::I16(-30_000)),
        ("test.u32", Value::U32(4_000_000_000)),
        ("test.i32", Value::I32(-2_000_000_000)),
        ("test.f32", Value::F32(0.1)),
        ("test.bool", Value::Bool(true)),
        ("test.string", Value::String("größer ≥ 🦀".into())),
        ("test.u64", Value::U64((1 << 63) + 1)),
        ("test.i64", Value::I64(-(1 << 62))),
        ("test.f64", Value::F64(1e300)),
        ("test.ints", Value::Array(ints(&[1, -2, 3]))),
        ("test.floats", Value::Array(Array::F32(vec![0.5, -1.5]))),
        ("test.bools", Value::Array(Array::Bool(vec![true, false, true]))),
        ("test.strings", Value::Array(Array::Strings(["", "a", "Ġthe", "日本"].into_iter().collect()))),
        ("test.nested", Value::Array(Array::Arrays(vec![ints(&[1, 2]), ints(&[3])]))),
    ]
}

#[test]
fn every_type_is_read_as_it_was_written() {
    let file = read(EVERY_TYPE).unwrap();
    let seen: Vec<_> = file.metadata().iter().map(|(key, value)| (key, value.clone())).collect();
    assert_eq!(seen, expected());
    assert!(file.notes().is_empty());
}

#[test]
fn tensors_stand_where_they_were_written() {
    let file = read(EVERY_TYPE).unwrap();
    let seen: Vec<_> =
        file.tensors().iter().map(|t| (t.name.as_str(), t.kind.to_string(), t.shape.as_slice(), t.offset, t.bytes)).collect();
    assert_eq!(
        seen,
        [
            ("vector", "f32".to_owned(), &[3][..], 832, 12),
            ("matrix", "f16".to_owned(), &[3, 2], 864, 12),
            ("blocks", "q4_0".to_owned(), &[64, 2], 896, 72),
            ("foreign", "iq4_nl".to_owned(), &[32, 1], 992, 18),
        ]
    );
    assert_eq!(file.bytes(file.tensor("blocks").unwrap()), (0..72).collect::<Vec<u8>>());
    assert!(file.tensor("absent").is_none());
}

#[test]
fn getters_take_any_width_and_name_what_does_not_fit() {
    let file = read(EVERY_TYPE).unwrap();
    let meta = file.metadata();
    assert_eq!(meta.u32("test.u8").unwrap(), Some(200));
    assert_eq!(meta.u32("test.absent").unwrap(), None);
    assert_eq!(meta.f32("test.f32").unwrap(), Some(0.1));
    assert_eq!(meta.f32s("test.floats").unwrap(), Some(&[0.5, -1.5][..]));
    assert_eq!(meta.i32s("test.ints").unwrap(), Some(&[1, -2, 3][..]));
    assert_eq!(meta.bool("test.bool").unwrap(), Some(true));
    for (error, said) in [
        (meta.u32("test.i8").unwrap_err(), "test.gguf: metadata test.i8 is i8 -100, not a whole number from 0"),
        (meta.u32("test.u64").unwrap_err(), "test.u64 is u64 9223372036854775809"),
        (meta.f32("test.f64").unwrap_err(), "test.f64 is f64 1000000000"),
        (meta.str("test.strings").unwrap_err(), "test.strings is an array of 4 texts, not a text"),
        (meta.i32s("test.floats").unwrap_err(), "an array of 2 f32, not an array of i32"),
        (meta.required("test.absent", None::<()>).unwrap_err(), "metadata test.absent is missing"),
    ] {
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn strings_count_and_walk_both_ways() {
    let strings: Strings = ["", "a", "Ġthe"].into_iter().collect();
    assert_eq!((strings.len(), &strings[1], strings.get(3)), (3, "a", None));
    assert_eq!(strings.iter().rev().collect::<Vec<_>>(), ["Ġthe", "a", ""]);
    assert_eq!(Strings::default().iter().len(), 0);
}

#[test]
fn the_writer_writes_what_the_python_package_writes() {
    let file = read(EVERY_TYPE).unwrap();
    let mut writer = Writer::new();
    for (key, value) in file.metadata().iter() {
        writer.set(key, value.clone());
    }
    for t in file.tensors() {
        writer.tensor(&t.name, t.kind, &t.shape).unwrap();
    }
    let mut bytes = Vec::new();
    let fill = |i: usize, out: &mut Vec<u8>| {
        out.extend(file.bytes(&file.tensors()[i]));
        Ok(())
    };
    writer.write("test.gguf".as_ref(), &mut bytes, fill).unwrap();
    assert!(bytes == EVERY_TYPE);
    // The same in small pieces.
    let mut bytes = Vec::new();
    let fill = |i: usize, out: &mut dyn Write| {
        file.bytes(&file.tensors()[i]).chunks(3).for_each(|piece| out.write_all(piece).unwrap());
        Ok(())
    };
    writer.write_streamed("test.gguf".as_ref(), &mut bytes, fill).unwrap();
    assert!(bytes == EVERY_TYPE);
}

#[test]
fn the_writer_refuses_what_cannot_be_read() {
    let mut writer = Writer::new();
    for (kind, shape) in [(0, &[][..]), (0, &[1, 0]), (0, &[1; 5]), (2, &[31]), (99, &[1]), (0, &[usize::MAX, 2]), (0, &[usize::MAX])] {
        assert!(writer.tensor("t", TensorType(kind), shape).is_err(), "{kind} {shape:?}");
    }
    writer.tensor("t", TensorType(0), &[2]).unwrap();
    let error = writer.write("test.gguf".as_ref(), &mut Vec::new(), |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("tensor t has 8 bytes, got 0"), "{error}");
    let too_many = |_: usize, out: &mut dyn Write| {
        out.write_all(&[0; 9]).unwrap();
        Ok(())
    };
    let error = writer.write_streamed("test.gguf".as_ref(), &mut Vec::new(), too_many).unwrap_err().to_string();
    assert!(error.contains("tensor t has 8 bytes, got 9"), "{error}");
}
