package tomlfile

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// valueDecoder is a type that reads itself from a TOML value. The error is an *Error with message and hint alone.
type valueDecoder interface{ fromTOML(v any) *Error }

// Decode maps the file onto the struct that into points to. Fields are named by their toml tag; a field without
// one isn't a key. Fields are strings, bools, ints, Duration, Size, structs, pointers to these (nil where the file doesn't
// say the key), slices, and maps by name. What the file doesn't say stays as it is. A key without a field, and a
// value of another type than its field's, is an *Error; the one that stands first in the file is returned.
func (f *File) Decode(into any) error {
	d := decoder{file: f}
	d.value("", f.root, reflect.ValueOf(into).Elem())
	return d.problems.First()
}

type decoder struct {
	file     *File
	problems Problems
}

func (d *decoder) wrong(key Key, e *Error) {
	at := d.file.Pos(key)
	e.File, e.Line, e.Column, e.Key = d.file.Path, at.Line, at.Column, key
	d.problems.Add(e)
}

func (d *decoder) value(key Key, v any, into reflect.Value) {
	if own, ok := into.Addr().Interface().(valueDecoder); ok {
		if e := own.fromTOML(v); e != nil {
			d.wrong(key, e)
		}
		return
	}
	mismatch := func(want string) {
		e := &Error{Msg: fmt.Sprintf("must be %s, not %s", want, describe(v))}
		if into.Kind() == reflect.String {
			// Not the value itself: what should be text may be a secret in the wrong place.
			e.Msg, e.Hint = "must be text, not "+kindOf(v), `write it in quotes`
		}
		d.wrong(key, e)
	}
	switch into.Kind() {
	case reflect.Pointer:
		p := reflect.New(into.Type().Elem())
		d.value(key, v, p.Elem())
		into.Set(p)
	case reflect.String:
		if s, ok := v.(string); ok {
			into.SetString(s)
		} else {
			mismatch("text")
		}
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			into.SetBool(b)
		} else {
			mismatch("true or false")
		}
	case reflect.Int, reflect.Int64:
		if n, ok := v.(int64); ok && !into.OverflowInt(n) {
			into.SetInt(n)
		} else {
			mismatch("a whole number")
		}
	case reflect.Slice:
		d.slice(key, v, into, mismatch)
	case reflect.Map:
		if m, ok := v.(map[string]any); ok {
			into.Set(reflect.MakeMapWithSize(into.Type(), len(m)))
			for name, sub := range m {
				e := reflect.New(into.Type().Elem()).Elem()
				d.value(key.Dot(name), sub, e)
				into.SetMapIndex(reflect.ValueOf(name), e)
			}
		} else {
			mismatch("a table")
		}
	case reflect.Struct:
		if m, ok := v.(map[string]any); ok {
			d.table(key, m, into)
		} else {
			mismatch("a table")
		}
	default:
		panic("tomlfile: no way to read into " + into.Type().String())
	}
}

func (d *decoder) slice(key Key, v any, into reflect.Value, mismatch func(string)) {
	var elements []any
	switch v := v.(type) {
	case []any:
		elements = v
	case []map[string]any:
		for _, m := range v {
			elements = append(elements, m)
		}
	case string:
		d.wrong(key, &Error{Msg: "must be a list, not text", Hint: "write [" + Show(v) + "]"})
		return
	default:
		mismatch("a list")
		return
	}
	list := reflect.MakeSlice(into.Type(), len(elements), len(elements))
	for i, e := range elements {
		d.value(key.Index(i), e, list.Index(i))
	}
	into.Set(list)
}

func (d *decoder) table(key Key, m map[string]any, into reflect.Value) {
	fields := map[string]int{}
	for i := range into.NumField() {
		if tag := into.Type().Field(i).Tag.Get("toml"); tag != "" {
			fields[tag] = i
		}
	}
	known := slices.Sorted(maps.Keys(fields))
	for name, v := range m {
		i, ok := fields[name]
		if !ok {
			d.wrong(key.Dot(name), &Error{Msg: "unknown key", Hint: unknownHint(name, known)})
			continue
		}
		d.value(key.Dot(name), v, into.Field(i))
	}
}

func unknownHint(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %s?", Key("").Dot(near))
	}
	return "known here: " + strings.Join(known, ", ")
}

// describe names a value in an error, numbers by themselves.
func describe(v any) string {
	switch v.(type) {
	case bool, int64, float64:
		return fmt.Sprintf("%s %v", strings.Replace(kindOf(v), "a ", "the ", 1), v)
	}
	return kindOf(v)
}

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case bool:
		return "a truth value"
	case int64, float64:
		return "a number"
	case time.Time:
		return "a date"
	case []any, []map[string]any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("a %T", v)
}

// asError makes message and hint of any error of this package's parsers.
func asError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Msg: err.Error(), Err: err}
}
