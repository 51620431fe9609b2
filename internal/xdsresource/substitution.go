package xdsresource

import (
	"strconv"
	"strings"

	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxSubstitution bounds the substitution text, since each reference to a group in it can
// insert the whole subject.
const maxSubstitution = 1 << 10

// substitution decodes a RegexMatchAndSubstitute. It returns nil if pb is nil
// or after a fault.
func (d *matchDecoder) substitution(at *faults.Path, pb *matcherpb.RegexMatchAndSubstitute) *Substitution {
	if pb == nil {
		return nil
	}
	re := d.compile(at.Field("pattern"), pb.GetPattern(), false)
	if re.Regexp == nil {
		return nil
	}
	at = at.Field("substitution")
	if n := len(pb.GetSubstitution()); n > maxSubstitution {
		d.fault(at, "has %d bytes, more than %d", n, maxSubstitution)
		return nil
	}
	template, fault := templateOf(pb.GetSubstitution(), re.NumSubexp())
	if fault != "" {
		d.fault(at, "%s: %s", faults.Quote(pb.GetSubstitution()), fault)
		return nil
	}
	return &Substitution{Regex: re.Regexp, Template: template}
}

// templateOf turns a substitution of RE2, where \1 is the first group, into
// one of package regexp, or says what is wrong with it.
func templateOf(substitution string, groups int) (template, fault string) {
	var b strings.Builder
	for rest := substitution; rest != ""; {
		c := rest[0]
		rest = rest[1:]
		switch {
		case c == '$':
			b.WriteString("$$")
		case c != '\\':
			b.WriteByte(c)
		case rest != "" && rest[0] == '\\':
			b.WriteByte('\\')
			rest = rest[1:]
		case rest != "" && '0' <= rest[0] && rest[0] <= '9':
			group := int(rest[0] - '0')
			if group > groups {
				return "", `the pattern has no group for \` + strconv.Itoa(group)
			}
			b.WriteString("${" + strconv.Itoa(group) + "}")
			rest = rest[1:]
		default:
			return "", `a \ must be followed by a digit or another \`
		}
	}
	return b.String(), ""
}
