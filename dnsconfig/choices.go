package dnsconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds on what Parse reads.
const (
	// maxSize bounds a list, in bytes, like a DNS response (A2, "Encoding in DNS TXT
	// Records"). The number of choices has no other bound.
	maxSize  = 65535
	maxDepth = 64 // of objects and lists in a choice
)

// Choice is an entry of a List: a service config, and the clients that it is for.
type Choice struct {
	Index           int      // in the list, from 0
	ClientLanguages []string // in any case; empty: all
	Percentage      *int     // of clients; nil: all
	ClientHostnames []string // in their exact case; empty: all
	ServiceConfig   string   // a JSON object
}

// VoidChoice is an entry of a List that is ignored.
type VoidChoice struct {
	Index  int   // in the list, from 0
	Reason error // every fault, with its field
}

// List is a parsed list of choices. It is immutable.
type List struct {
	Choices []*Choice    // the valid entries, in order
	Void    []VoidChoice // the others, in order
}

// Client is what choices are matched against.
type Client struct {
	// Language is compared to ClientLanguages; "go" for this implementation.
	Language string
	// Hostname is compared to ClientHostnames. Empty: it is unknown, and choices with
	// ClientHostnames do not match.
	Hostname string
	// Draw is a number from 0 to 99, drawn once per client: a choice with a percentage
	// matches if Draw is less. So a growing percentage never loses a client.
	Draw int
}

// Parse reads the value of the attribute. A faulty choice becomes void and does not affect
// others (A2, "Canarying Changes"). Only a value that is no list, or exceeds the bounds, is
// an error.
//
// validate, if not nil, checks whether a JSON object is a valid gRPC service config. It is
// called for each choice without another fault.
func Parse(value string, validate func(serviceConfig string) error) (*List, error) {
	if len(value) > maxSize {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that DNS can carry", attribute, len(value), maxSize)
	}
	var entries []json.RawMessage
	if err := json.Unmarshal([]byte(value), &entries); err != nil {
		return nil, notAList(value, err)
	}
	if entries == nil {
		return nil, fmt.Errorf("%s is null, where a list of choices is expected", attribute)
	}
	list := new(List)
	for i, entry := range entries {
		c, err := parseChoice(entry, validate)
		if err != nil {
			list.Void = append(list.Void, VoidChoice{Index: i, Reason: err})
			continue
		}
		c.Index = i
		list.Choices = append(list.Choices, c)
	}
	return list, nil
}

// notAList returns the error for a value that json does not decode into a list.
func notAList(value string, err error) error {
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("%s is not valid JSON: %v (byte %d of %d)", attribute, err, syntax.Offset, len(value))
	}
	return fmt.Errorf("%s is not a JSON list of choices: it begins with %s", attribute, abbreviate(value))
}

// Choose returns the first choice that matches the client, or nil.
func (l *List) Choose(c Client) *Choice {
	for _, choice := range l.Choices {
		if choice.matches(c) {
			return choice
		}
	}
	return nil
}

func (c *Choice) matches(client Client) bool {
	if len(c.ClientLanguages) > 0 && !slices.ContainsFunc(c.ClientLanguages, func(l string) bool { return strings.EqualFold(l, client.Language) }) {
		return false
	}
	if c.Percentage != nil && client.Draw >= *c.Percentage {
		return false
	}
	return len(c.ClientHostnames) == 0 || client.Hostname != "" && slices.Contains(c.ClientHostnames, client.Hostname)
}

// The fields of a choice.
const (
	fieldLanguage      = "clientLanguage"
	fieldPercentage    = "percentage"
	fieldHostname      = "clientHostname"
	fieldServiceConfig = "serviceConfig"
)

var fields = []string{fieldLanguage, fieldPercentage, fieldHostname, fieldServiceConfig}

// parseChoice returns a choice, or an error with all of its faults.
func parseChoice(entry json.RawMessage, validate func(string) error) (*Choice, error) {
	if err := checkStrictly(entry); err != nil {
		return nil, err
	}
	if entry[0] != '{' {
		return nil, fmt.Errorf("not an object: %s", abbreviate(string(entry)))
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(entry, &values); err != nil {
		return nil, err
	}
	var f faults
	f.unexpected(values)
	c := &Choice{
		ClientLanguages: f.texts(values, fieldLanguage),
		Percentage:      f.percentage(values),
		ClientHostnames: f.texts(values, fieldHostname),
		ServiceConfig:   f.serviceConfig(values),
	}
	if len(f) == 0 && validate != nil {
		if err := validate(c.ServiceConfig); err != nil {
			f.add(fieldServiceConfig, "not a valid service config: %v", err)
		}
	}
	if len(f) > 0 {
		return nil, errors.New(strings.Join(f, "; "))
	}
	return c, nil
}

// faults are the faults of a choice.
type faults []string

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, field+": "+fmt.Sprintf(format, args...))
}

func (f *faults) unexpected(values map[string]json.RawMessage) {
	var names []string
	for name := range values {
		if !slices.Contains(fields, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		*f = append(*f, enumerate(names, "; ", func(name string) string { return "unexpected field " + abbreviate(name) }))
	}
}

func (f *faults) texts(values map[string]json.RawMessage, field string) []string {
	value, ok := values[field]
	if !ok {
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil || items == nil {
		f.add(field, "expected a list of strings, found %s", abbreviate(string(value)))
		return nil
	}
	texts := make([]string, 0, len(items))
	for i, item := range items {
		var text *string
		if json.Unmarshal(item, &text) != nil || text == nil {
			f.add(fmt.Sprintf("%s[%d]", field, i), "expected a string, found %s", abbreviate(string(item)))
			return nil
		}
		texts = append(texts, *text)
	}
	return texts
}

// percentagePattern is the intended meaning of A2's ^0|[0-9]|[1-9][0-9]|100$, in which ^ and $
// bind only the outer alternatives.
var percentagePattern = regexp.MustCompile(`^(0|[0-9]|[1-9][0-9]|100)$`)

func (f *faults) percentage(values map[string]json.RawMessage) *int {
	value, ok := values[fieldPercentage]
	if !ok {
		return nil
	}
	if !percentagePattern.Match(value) {
		f.add(fieldPercentage, "expected an integer from 0 to 100, written without sign, fraction, exponent or quotes; found %s", abbreviate(string(value)))
		return nil
	}
	n, err := strconv.Atoi(string(value))
	if err != nil {
		f.add(fieldPercentage, "%v", err)
		return nil
	}
	return &n
}

func (f *faults) serviceConfig(values map[string]json.RawMessage) string {
	value, ok := values[fieldServiceConfig]
	switch {
	case !ok:
		f.add(fieldServiceConfig, "missing")
	case value[0] != '{':
		f.add(fieldServiceConfig, "expected an object, found %s", abbreviate(string(value)))
	}
	return string(value)
}
