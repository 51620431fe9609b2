package xdsclient

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Ignored is a part of a resource that this client does not use: a populated field that it
// does not act on, or something that the decoder left out of the value.
type Ignored struct {
	// Path is the proto field path from the resource, for example
	// "virtual_hosts[2].routes[0].stat_prefix".
	Path string `json:"path"`
	// Reason says why.
	Reason string `json:"reason"`
	// Severity says whether it matters.
	Severity Severity `json:"severity"`
	// Places is the number of places in the resource that are ignored for this reason; Path
	// is the first of them. 0 and 1 both mean one.
	Places int `json:"places,omitempty"`
}

// String returns the path, the reason, and the number of places if they are several,
// on one line.
func (i Ignored) String() string {
	text := i.Path + ": " + i.Reason
	if i.Places > 1 {
		text += fmt.Sprintf(" (at %d places)", i.Places)
	}
	return text
}

// Severity says how much it matters that something is ignored. The zero value means SeverityInfo, too.
type Severity string

// The values of Severity.
const (
	// SeverityInfo: RPCs go where the resource says, under the security it says.
	SeverityInfo Severity = "info"
	// SeverityWarning: connections may have less security than the resource asks for,
	// or RPCs may go elsewhere than it says.
	SeverityWarning Severity = "warning"
)

// String returns "info" or "warning".
func (s Severity) String() string { return string(cmp.Or(s, SeverityInfo)) }

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ignoredLog logs which fields of resources are ignored: each field of a type once, with the first resource that
// has it; at warning level fields that matter, at info level others.
type ignoredLog struct {
	mu   sync.Mutex
	said map[ignoredField]struct{}
}

// ignoredField is a path without indexes in resources of a type.
type ignoredField struct {
	typ  *ResourceType
	path string
}

// maxIgnoredFields bounds the fields that are logged: a path may have keys, which a peer chooses.
const maxIgnoredFields = 1000

// index is a position in a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// add logs the ignored fields of a resource that have not been logged.
func (l *ignoredLog) add(typ *ResourceType, name []byte, value any) {
	if typ.Ignored == nil {
		return
	}
	list := typ.Ignored(value)
	if len(list) == 0 {
		return
	}
	var warnings, others []string
	l.mu.Lock()
	for _, part := range list {
		field := ignoredField{typ, index.ReplaceAllString(part.Path, "")}
		if _, said := l.said[field]; said || len(l.said) == maxIgnoredFields {
			continue
		}
		if l.said == nil {
			l.said = make(map[ignoredField]struct{})
		}
		l.said[field] = struct{}{}
		if part.Severity == SeverityWarning {
			warnings = append(warnings, part.String())
		} else {
			others = append(others, part.String())
		}
	}
	l.mu.Unlock()
	const format = "xDS %s %q is in use without: %s"
	if len(warnings) > 0 {
		logger.Warningf(format, typ.Name, name, strings.Join(warnings, "; "))
	}
	if len(others) > 0 {
		logger.Infof(format, typ.Name, name, strings.Join(others, "; "))
	}
}
