package dnsconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
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
// called for each choice without another error.
func Parse(value string, validate func(serviceConfig string) error) (*List, error) {
	if len(value) > maxSize {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that DNS can carry", attribute, len(value), maxSize)
	}
	v, err := jsondoc.Parse([]byte(value), new(faults.Faults))
	if err != nil {
		return nil, fmt.Errorf("%s is %w", attribute, err)
	}
	if !v.IsList() {
		return nil, fmt.Errorf("%s is %s, where a list of choices is expected", attribute, v.Kind())
	}
	list := new(List)
	for i, entry := range v.Elements("a list") {
		c, err := parseChoice(entry.Raw(), validate)
		if err != nil {
			list.Void = append(list.Void, VoidChoice{Index: i, Reason: err})
			continue
		}
		c.Index = i
		list.Choices = append(list.Choices, c)
	}
	return list, nil
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

// parseChoice returns a choice, or an error that lists what is wrong with it.
func parseChoice(entry json.RawMessage, validate func(string) error) (*Choice, error) {
	if i := slices.IndexFunc(entry, func(b byte) bool { return b >= utf8.RuneSelf }); i >= 0 {
		return nil, fmt.Errorf("byte %d of the choice is %#02x; TXT records hold ASCII only: write characters beyond it as \\u escapes", i, entry[i])
	}
	var found faults.Faults
	v, err := jsondoc.Parse(entry, &found)
	if err != nil {
		return nil, err
	}
	c := new(Choice)
	c.parse(v)
	if found.Total() == 0 && validate != nil {
		if err := validate(c.ServiceConfig); err != nil {
			found.Addf(faults.Field(fieldServiceConfig), "not a valid service config: %v", err)
		}
	}
	if found.Total() > 0 {
		return nil, errors.New(faults.Shorten(found.Join("; "), maxReason))
	}
	return c, nil
}

// maxReason bounds the reason why a choice is void, in bytes.
const maxReason = 900

func (c *Choice) parse(v jsondoc.Value) {
	o := v.Object()
	for _, name := range o.Names() {
		if !slices.Contains(fields, name) {
			o.Fault("", "unexpected field %s", faults.Quote(name))
		}
	}
	c.ClientLanguages = texts(o.Field(fieldLanguage))
	c.Percentage = percentage(o.Field(fieldPercentage))
	c.ClientHostnames = texts(o.Field(fieldHostname))
	config := o.Field(fieldServiceConfig)
	if !config.IsObject() {
		config.Expected("an object")
	}
	checkStrictly(config, 2)
	c.ServiceConfig = string(config.Raw())
}

// checkStrictly reports what package json accepts though its meaning is unclear: a key that is there twice, and deep
// nesting.
func checkStrictly(v jsondoc.Value, depth int) {
	switch {
	case !v.IsObject() && !v.IsList():
	case depth > maxDepth:
		v.Fault("", "expected at most %d levels of nesting, found more", maxDepth)
	case v.IsObject():
		o := v.Object()
		for _, name := range o.Names() {
			checkStrictly(o.Field(name), depth+1)
		}
	default:
		for _, item := range v.Elements("a list") {
			checkStrictly(item, depth+1)
		}
	}
}

func texts(v jsondoc.Value) (texts []string) {
	for _, item := range v.Elements("a list of strings") {
		text, _ := item.RequiredText("a string")
		texts = append(texts, text)
	}
	return texts
}

// percentagePattern is the intended meaning of A2's ^0|[0-9]|[1-9][0-9]|100$, in which ^ and $
// bind only the outer alternatives.
var percentagePattern = regexp.MustCompile(`^(0|[0-9]|[1-9][0-9]|100)$`)

func percentage(v jsondoc.Value) *int {
	if !v.Present() {
		return nil
	}
	if !percentagePattern.Match(v.Raw()) {
		v.Fault("", "expected an integer from 0 to 100, written without sign, fraction, exponent or quotes; found %s", faults.Quote(string(v.Raw())))
	}
	n, _ := strconv.Atoi(string(v.Raw()))
	return &n
}
