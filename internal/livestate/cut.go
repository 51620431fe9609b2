package livestate

import (
	"reflect"
	"strings"
)

// sentences are the keys of what is said in sentences, which may be as long as an error. All other texts are names.
var sentences = map[string]bool{
	"error": true, "last_error": true, "reason": true, "why": true, "notes": true, "action": true, "text": true, "detail": true,
	"first_fault": true, "waiting": true, "reports": true, "reasons": true, "subject": true, "where": true,
}

// Cut returns a value for JSON in which each text is what a function makes of it, and of whether it is a sentence. The value itself,
// which others may have, is not changed.
func Cut(value any, cut func(text string, sentence bool) string) any {
	c := reflect.New(reflect.TypeOf(value)).Elem()
	c.Set(reflect.ValueOf(value))
	cutIn(c, false, cut)
	return c.Interface()
}

// cutIn cuts the texts in a value that may be set, behind copies of its pointers and slices.
func cutIn(v reflect.Value, sentence bool, cut func(string, bool) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(cut(v.String(), sentence))
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(v.Elem())
		v.Set(c)
		cutIn(c.Elem(), sentence, cut)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		v.Set(c)
		for i := range c.Len() {
			cutIn(c.Index(i), sentence, cut)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if key != "-" && (field.IsExported() || field.Anonymous) {
				cutIn(v.Field(i), sentences[key], cut)
			}
		}
	}
}
