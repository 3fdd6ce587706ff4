package site

import "reflect"

// tags lists the keys that a struct decodes.
func tags(v any) []string {
	var list []string
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		list = append(list, t.Field(i).Tag.Get("toml"))
	}
	return list
}
