package statuspage

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// Bounds on texts, in bytes. Names may have 64 KiB, and an error lists up to 100.
const (
	maxName  = 300
	maxError = 4000
)

// texts are the keys of what is said in sentences, which may be as long as an error. All other texts are names.
var texts = map[string]bool{
	"error": true, "last_error": true, "ambient": true, "reason": true, "why": true, "notes": true, "action": true, "text": true, "detail": true,
	"first_fault": true, "waiting": true, "reports": true, "reasons": true,
}

// clipped returns a value for JSON with its texts from outside shortened. The value itself, which others may have, is not
// changed.
func clipped(value any) any {
	c := reflect.New(reflect.TypeOf(value)).Elem()
	c.Set(reflect.ValueOf(value))
	clipIn(c, maxName)
	return c.Interface()
}

// clipIn shortens the texts in a value that may be set, behind copies of its pointers and slices.
func clipIn(v reflect.Value, limit int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(clip(v.String(), limit))
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(v.Elem())
		v.Set(c)
		clipIn(c.Elem(), limit)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		v.Set(c)
		for i := range c.Len() {
			clipIn(c.Index(i), limit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case texts[key]:
				clipIn(v.Field(i), maxError)
			case field.IsExported() || field.Anonymous:
				clipIn(v.Field(i), maxName)
			}
		}
	}
}

// clip shortens text from outside, and appends its length.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", faults.Shorten(s, limit), len(s))
}

// first returns the first elements of a list, which are not nil.
func first[T any](list []T, limit int) []T {
	return append([]T{}, list[:min(len(list), limit)]...)
}

// needle is what is searched for: a text, without regard to case.
type needle string

func newNeedle(text string) needle { return needle(strings.TrimSpace(text)) }

// in reports whether one of the texts contains the needle.
func (n needle) in(texts ...string) bool {
	for _, text := range texts {
		for i := 0; i+len(n) <= len(text); i++ {
			if strings.EqualFold(text[i:i+len(n)], string(n)) {
				return true
			}
		}
	}
	return n == ""
}
