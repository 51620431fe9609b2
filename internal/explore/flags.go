package explore

import (
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

var (
	onlyFlag  = flag.String("check.way", "", "the ways that TestCheck goes, as a regular expression")
	scopeFlag = flag.String("check.scope", "", `the scope of TestCheck in place of its own, such as "user=3 world=2"; the words are the fields of checkScope in check_test.go`)
	timeFlag  = flag.Duration("check.time", 0, "how long TestCheck follows one way at most; 0: until the scope is exhausted")
)

// Selected reports whether the flags select a way.
func Selected(way string) bool { return regexp.MustCompile(*onlyFlag).MatchString(way) }

// TimeLimit is the limit of the flags for Run.
func TimeLimit() time.Duration { return *timeFlag }

// ScopesOf returns the scopes to follow, which bound the events of paths: all, or the first one with the changes of the flags.
func ScopesOf[S any](all []S) []S {
	if *scopeFlag == "" {
		return all
	}
	Override(&all[0], *scopeFlag)
	return all[:1]
}

// Override sets fields of a scope, numbers and texts, by a text such as "user=3 start=01".
func Override[S any](scope *S, text string) {
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		field := reflect.ValueOf(scope).Elem().FieldByName(name)
		if !field.IsValid() {
			panic("a scope has no " + name)
		}
		switch to := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Interface().(type) { // It is not exported.
		case *string:
			*to = value
		default:
			fmt.Sscan(value, to)
		}
	}
}
