package explore

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	onlyFlag  = flag.String("check.way", "", "the ways that TestCheck goes, as a regular expression")
	scopeFlag = flag.String("check.scope", "", `the scope of TestCheck in place of its own, such as "user=3 world=2"; the words are those of Field in check_test.go`)
	timeFlag  = flag.Duration("check.time", 0, "how long TestCheck follows one way at most; 0: until the scope is exhausted")
)

// Selected reports whether the flags select a way.
func Selected(way string) bool { return regexp.MustCompile(*onlyFlag).MatchString(way) }

// TimeLimit is the limit of the flags for Run.
func TimeLimit() time.Duration { return *timeFlag }

// Scope is what bounds the events of paths. Field returns a pointer to the number or text with a name.
type Scope interface{ Field(name string) any }

// ScopesOf returns the scopes to follow: all, or the first one with the changes of the flags.
func ScopesOf[S any, P interface {
	*S
	Scope
}](all []S) []S {
	if *scopeFlag == "" {
		return all
	}
	Override(P(&all[0]), *scopeFlag)
	return all[:1]
}

// Override sets fields of a scope by a text such as "user=3 start=01".
func Override(s Scope, text string) {
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		switch field := s.Field(name).(type) {
		case *string:
			*field = value
		case *int, *bool:
			fmt.Sscan(value, field)
		default:
			panic("a scope has no " + name)
		}
	}
}
