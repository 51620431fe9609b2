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
	// maxSize is the size of the largest list, in bytes: what a DNS response
	// holds at most (A2, "Encoding in DNS TXT Records"). A list may have as many
	// choices as fit.
	maxSize = 65535
	// maxDepth is the depth to which objects and lists may nest in a choice.
	maxDepth = 64
)

// Choice is one entry of a List: a service config, and whom it is for.
type Choice struct {
	// Index is the entry's place in the list, from 0.
	Index int
	// ClientLanguages are the languages it is for, in any case; all if empty.
	ClientLanguages []string
	// Percentage is how many of 100 clients it is for; all if nil.
	Percentage *int
	// ClientHostnames are the hosts it is for, in their exact case; all if
	// empty.
	ClientHostnames []string
	// ServiceConfig is the service config, a JSON object.
	ServiceConfig string
}

// VoidChoice is an entry of a List that is left out of account, and why.
type VoidChoice struct {
	// Index is the entry's place in the list, from 0.
	Index int
	// Reason names every fault with the field it is in.
	Reason error
}

// List is a parsed list of choices. It is immutable.
type List struct {
	// Choices are the valid entries, in order.
	Choices []*Choice
	// Void are the others, in order.
	Void []VoidChoice
}

// Client is what choices are matched against.
type Client struct {
	// Language is compared to ClientLanguages; "go" for this implementation.
	Language string
	// Hostname is compared to ClientHostnames. While it is empty, which means
	// that it is not known, no choice with ClientHostnames matches.
	Hostname string
	// Draw decides about percentages: a number from 0 to 99, drawn once for a
	// client, who is one of the first P of 100 if it is smaller than P. So a
	// percentage that grows never loses a client.
	Draw int
}

// Parse reads the value of the attribute. A faulty choice becomes void; only a
// value that is no list at all, or passes the bounds, is an error (A2,
// "Canarying Changes": a choice that is not valid is ignored and indicated, and
// the search for valid ones goes on).
//
// validate, if not nil, decides whether the JSON object it is given is a valid
// gRPC service config. It is called for each choice that is valid otherwise.
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

// notAList says what is wrong with a value that json does not take for a list.
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

// parseChoice returns the choice, or an error that names all of its faults.
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

// faults collects what is wrong with a choice.
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
	for i, name := range names {
		if i == maxListed {
			*f = append(*f, fmt.Sprintf("%d more unexpected fields", len(names)-i))
			return
		}
		*f = append(*f, "unexpected field "+abbreviate(name))
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

// percentagePattern is what the pattern of A2, ^0|[0-9]|[1-9][0-9]|100$, means:
// the alternatives each bound at both ends.
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
