package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// quote quotes and shortens what a control plane or a user wrote.
func quote(text string) string { return faults.Quote(text) }

// DescribeMatch describes the conditions of a route.
func DescribeMatch(m *matching.Route) string {
	parts := []string{describePath(m)}
	c := m.Conditions()
	for i := range c.Query {
		parts = append(parts, "query "+c.Query[i].Name+" "+describeQuery(&c.Query[i]))
	}
	for i := range c.Headers {
		parts = append(parts, "header "+c.Headers[i].Name+" "+describeHeader(&c.Headers[i]))
	}
	if f := c.FractionPerMillion; f != nil {
		parts = append(parts, formatPercent(float64(*f)*100/matching.Million)+" of the RPCs")
	}
	return strings.Join(parts, " and ")
}

func describePath(m *matching.Route) string {
	var text string
	switch m.PathKind {
	case matching.PathExact:
		text = "path " + quote(m.Path)
	case matching.PathRegex:
		return "path ~ " + quote(matching.Pattern(m.Conditions().Regex.Regexp))
	case matching.PathSeparatedPrefix:
		text = "path-separated prefix " + quote(m.Path)
	default:
		text = "prefix " + quote(m.Path)
	}
	if m.CaseInsensitive {
		text += ignoringCase
	}
	return text
}

const ignoringCase = " (ignoring case)"

func describeQuery(q *matching.Query) string {
	switch {
	case q.String != nil:
		return describeString(q.String)
	case q.Present:
		return "present"
	default:
		return absent
	}
}

func describeHeader(h *matching.Header) string {
	var text string
	switch h.Kind {
	case matching.HeaderRange:
		text = fmt.Sprintf("in [%d, %d)", h.Start, h.End)
	case matching.HeaderPresent:
		if !h.Invert {
			return "present"
		}
		return absent
	default:
		text = describeString(&h.String)
	}
	if h.Invert {
		text = "not " + text
	}
	if h.MissingAsEmpty {
		text += " (absent counts as empty)"
	}
	return text
}

// verbs say how a string is compared. Others are equal.
var verbs = map[matching.StringKind]string{
	matching.StringPrefix: "starts with ", matching.StringSuffix: "ends with ", matching.StringContains: "contains ",
}

func describeString(s *matching.String) string {
	if s.Kind == matching.StringRegex {
		return "~ " + quote(matching.Pattern(s.Regex))
	}
	text := cmp.Or(verbs[s.Kind], "= ") + quote(s.Value)
	if s.IgnoreCase {
		text += ignoringCase
	}
	return text
}

// formatPercent writes a share, "33.3333%".
func formatPercent(share float64) string {
	return strconv.FormatFloat(percent(share), 'f', -1, 64) + "%"
}

func describeDuration(d time.Duration) string {
	if d == 0 {
		return "no limit"
	}
	return d.String()
}
