// Package overlay is what a client changes in the resources that it receives: the list
// "overrides" of the bootstrap, for users who cannot change their control plane.
//
// package bootstrap has the list parsed; internal/xdsresource applies it while it decodes a
// resource, after what the server sent was found valid. An Override has a pattern of resource
// names and a Patch for each setting that it changes. This package knows the settings and their
// messages, and nothing of what the settings mean: internal/xdsresource checks that too, for the
// channels of the process.
package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// The settings, as the keys of an override.
const (
	OutlierDetection = "outlier_detection"
	CircuitBreakers  = "circuit_breakers"
	SubsetSize       = "subset_size"
	Timeout          = "timeout"
	RetryPolicy      = "retry_policy"
	HedgePolicy      = "hedge_policy"
)

// kind is what an override is for: resources of some types, of which it changes some settings.
type kind struct {
	key      string
	types    []string // type URLs
	settings []setting
}

// setting is a setting with the message that it is.
type setting struct {
	key     string
	message proto.Message
}

var kinds = []kind{
	{"clusters", []string{typeurl.Cluster}, []setting{
		{OutlierDetection, (*clusterpb.OutlierDetection)(nil)},
		{CircuitBreakers, (*clusterpb.CircuitBreakers_Thresholds)(nil)},
		{SubsetSize, (*wrapperspb.UInt32Value)(nil)},
	}},
	{"routes", []string{typeurl.RouteConfiguration, typeurl.Listener}, []setting{
		{Timeout, (*durationpb.Duration)(nil)},
		{RetryPolicy, (*routepb.RetryPolicy)(nil)},
		{HedgePolicy, (*routepb.HedgePolicy)(nil)},
	}},
}

// Overrides is the list of a bootstrap. It is immutable. A nil *Overrides is empty.
type Overrides struct {
	list []*Override
	text json.RawMessage
}

// JSON returns the list as the bootstrap has it, without white space. It is nil if there is none.
func (o *Overrides) JSON() json.RawMessage {
	if o == nil {
		return nil
	}
	return o.text
}

// For returns the overrides for a resource, in the order in which they apply.
func (o *Overrides) For(typeURL, name string) (found []*Override) {
	if o == nil {
		return nil
	}
	name = xdsname.Canonical(name)
	for _, one := range o.list {
		if one.matches(typeURL, name) {
			found = append(found, one)
		}
	}
	return found
}

// All returns all overrides.
func (o *Overrides) All() []*Override {
	if o == nil {
		return nil
	}
	return o.list
}

// NodeKey is the key of the node's metadata under which the client status (CSDS) has the list. Servers
// are not sent it.
const NodeKey = "dynxds.overrides"

// FromJSON reads a list of another process's bootstrap. It is nil if that is not valid.
func FromJSON(text []byte) *Overrides {
	found := new(faults.Faults)
	top, err := jsondoc.Parse(text, found)
	if err != nil {
		return nil
	}
	all := Parse(top, func(string) bool { return true })
	if found.Err() != nil {
		return nil
	}
	return all
}

// Override is one entry of the list.
type Override struct {
	// Index is its index in the list.
	Index   int
	kind    *kind
	pattern pattern
	patches map[string]*Patch
}

// Patch returns the patch of a setting, or nil if the override leaves the setting alone.
func (o *Override) Patch(setting string) *Patch { return o.patches[setting] }

func (o *Override) matches(typeURL, name string) bool {
	for _, t := range o.kind.types {
		if t == typeURL {
			return o.pattern.matches(name)
		}
	}
	return false
}

// pattern is a name, or what is before and behind the "*" in one.
type pattern struct {
	before, behind string
	star           bool
}

func (p pattern) matches(name string) bool {
	if !p.star {
		return name == p.before
	}
	return len(name) >= len(p.before)+len(p.behind) && strings.HasPrefix(name, p.before) && strings.HasSuffix(name, p.behind)
}

// Parse reads the list, and reports what is wrong with it. hasAuthority reports whether the
// bootstrap has an authority.
func Parse(v jsondoc.Value, hasAuthority func(string) bool) *Overrides {
	if v.Absent() {
		return nil
	}
	all := &Overrides{}
	for i, element := range v.Elements("a list of overrides") {
		if o := parseOverride(element, hasAuthority); o != nil {
			o.Index = i
			all.list = append(all.list, o)
		}
	}
	if len(all.list) == 0 {
		return nil
	}
	var text bytes.Buffer
	if err := json.Compact(&text, v.Raw()); err != nil {
		panic("overlay: " + err.Error()) // impossible: the text was read before
	}
	all.text = text.Bytes()
	return all
}

// parseOverride returns nil if the override is of no use.
func parseOverride(v jsondoc.Value, hasAuthority func(string) bool) *Override {
	entry := v.Object()
	if !entry.IsObject() {
		return nil
	}
	o := &Override{patches: make(map[string]*Patch)}
	for i := range kinds {
		switch k := &kinds[i]; {
		case !entry.Field(k.key).Present():
		case o.kind != nil:
			entry.Field(k.key).Fault("", "expected either %s or %s, found both", o.kind.key, k.key)
			return nil
		default:
			o.kind = k
		}
	}
	if o.kind == nil {
		v.Fault("", "expected a pattern of names under clusters or routes, found neither")
		return nil
	}
	ok := o.parsePattern(entry.Field(o.kind.key), hasAuthority)
	for _, name := range entry.Names() {
		if name != o.kind.key {
			ok = o.parseSetting(entry.Field(name), name) && ok
		}
	}
	if ok && len(o.patches) == 0 {
		v.Fault("", "expected something to change, such as %s, found nothing", o.kind.settings[0].key)
	}
	if !ok || len(o.patches) == 0 {
		return nil
	}
	return o
}

// secures reports whether a key is one by which somebody would change how connections are secured.
func secures(key string) bool {
	for _, part := range []string{"tls", "transport_socket", "secur", "credential", "san", "sni", "certificate", "validation"} {
		if strings.Contains(strings.ToLower(key), part) {
			return true
		}
	}
	return false
}

func (o *Override) parseSetting(v jsondoc.Value, name string) bool {
	var known []string
	for _, s := range o.kind.settings {
		if s.key == name {
			p := newPatch(v, s.message)
			o.patches[name] = p
			return p != nil
		}
		known = append(known, s.key)
	}
	for _, k := range kinds {
		for _, s := range k.settings {
			if s.key == name {
				v.Fault("", "is a setting of %s, and the override is for %s", k.key, o.kind.key)
				return false
			}
		}
	}
	if secures(name) {
		v.Fault("", "an override cannot change the security of connections, which only the control plane and the program's credentials decide")
		return false
	}
	v.Fault(faults.DidYouMean(name, known), "unknown key")
	return false
}

func (o *Override) parsePattern(v jsondoc.Value, hasAuthority func(string) bool) bool {
	text, ok := v.NonEmptyText(`a name such as "orders", or a pattern such as "orders-*"`)
	if !ok {
		return false
	}
	if strings.Count(text, "*") > 1 {
		v.Fault("", "expected a pattern with at most one *, found %s", faults.Quote(text))
		return false
	}
	if strings.HasPrefix(text, xdsname.Prefix) {
		problem := ""
		if text, problem = o.newStyle(text, hasAuthority); problem != "" {
			v.Fault("", "the pattern can match no name: %s", problem)
			return false
		}
	}
	o.pattern.before, o.pattern.behind, o.pattern.star = strings.Cut(text, "*")
	return true
}

// newStyle returns a pattern of names of xRFC TP1 in canonical form, or why no resource has such
// a name.
func (o *Override) newStyle(text string, hasAuthority func(string) bool) (canonical, problem string) {
	const beforeAuthority = xdsname.Prefix + "//"
	before, _, star := strings.Cut(text, "*")
	if parts := strings.Count(strings.TrimPrefix(before, beforeAuthority), "/"); star && parts < 2 {
		// The "*" stands for the type, too.
		if authority, ok := xdsname.Authority(before); parts == 1 && ok && !hasAuthority(authority) {
			return "", fmt.Sprintf("the bootstrap has no authority %s", faults.Quote(authority))
		}
		return text, ""
	}
	name, err := xdsname.Parse(text)
	if err != nil {
		return "", err.Error()
	}
	if !hasAuthority(name.Authority) {
		return "", fmt.Sprintf("the bootstrap has no authority %s", faults.Quote(name.Authority))
	}
	var want []string
	for _, t := range o.kind.types {
		if typeurl.Name(t) == name.Type {
			return name.Text, ""
		}
		want = append(want, typeurl.Name(t))
	}
	return "", fmt.Sprintf("it is for type %s, and %s have %s", faults.Quote(name.Type), o.kind.key, strings.Join(want, " or "))
}
