package sidechannel

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/matching"
)

// maxLength bounds names and values of headers, in bytes.
const maxLength = 16384

// checkName refuses names that a message must not have (gRFC A102, "Header Representation").
func checkName(key string) error {
	switch {
	case len(key) > maxLength:
		return fmt.Errorf("a header has a name of %d bytes, more than %d", len(key), maxLength)
	case key != strings.ToLower(key):
		return fmt.Errorf("header %q: the name is not in lower case", key)
	}
	_, err := headeredit.Name(headeredit.Response, key)
	return err
}

// read returns the value of a header in the form of metadata.
func read(pb *corepb.HeaderValue) (string, error) {
	if err := checkName(pb.GetKey()); err != nil {
		return "", err
	}
	value := cmp.Or(string(pb.GetRawValue()), pb.GetValue())
	if len(value) > maxLength {
		return "", fmt.Errorf("header %q: the value has %d bytes, more than %d", pb.GetKey(), len(value), maxLength)
	}
	return headeredit.Metadata(pb.GetKey(), value)
}

// Forward chooses the headers that a service sees. Without allowed it sees all that are not disallowed.
type Forward struct{ allowed, disallowed []matching.String }

// ParseForward reads allowed_headers and disallowed_headers of the message at.
func ParseForward(at *faults.Path, allowed, disallowed *matcherpb.ListStringMatcher, found *faults.Faults) Forward {
	return Forward{names(at.Field("allowed_headers"), allowed, found), names(at.Field("disallowed_headers"), disallowed, found)}
}

func names(at *faults.Path, pb *matcherpb.ListStringMatcher, found *faults.Faults) (list []matching.String) {
	if n := len(pb.GetPatterns()); n > bounds.HeaderEdits {
		found.Addf(at.Field("patterns"), "has %d entries, more than the %d that this client takes, as each RPC goes through them", n, bounds.HeaderEdits)
		return nil
	}
	for i, pattern := range pb.GetPatterns() {
		m, err := headeredit.NameMatcher(pattern, found.RegexCost)
		if err != nil {
			found.Addf(at.Item("patterns", i), "%v", err)
		}
		list = append(list, m)
	}
	return list
}

// Shows reports whether the service sees the header.
func (f *Forward) Shows(name string) bool {
	return !matches(f.disallowed, name) && (len(f.allowed) == 0 || matches(f.allowed, name))
}

func matches(list []matching.String, name string) bool {
	return slices.ContainsFunc(list, func(m matching.String) bool { return m.Matches(name) })
}

// HeaderMap returns the metadata that shows holds for as a message.
func HeaderMap(md metadata.MD, shows func(name string) bool) *corepb.HeaderMap {
	headers := new(corepb.HeaderMap)
	for name, values := range md {
		if !shows(name) {
			continue
		}
		for _, value := range values {
			raw := []byte(value)
			if strings.HasSuffix(name, "-bin") {
				raw = base64.StdEncoding.AppendEncode(nil, raw)
			}
			headers.Headers = append(headers.Headers, &corepb.HeaderValue{Key: name, RawValue: raw})
		}
	}
	return headers
}

// Rules say which mutations of headers a service may ask for (HeaderMutationRules). The zero Rules allow all.
type Rules struct {
	allow, disallow *matching.Regex // nil: not set
	disallowAll     bool
	fails           bool
}

// ErrDisallowed is the error of a mutation that the Rules disallow, if they make that an error.
var ErrDisallowed = errors.New("the mutation rules disallow it, with disallow_is_error")

// ParseRules reads HeaderMutationRules; nil is valid.
func ParseRules(at *faults.Path, pb *mutationpb.HeaderMutationRules, found *faults.Faults) Rules {
	return Rules{
		allow:       expression(at.Field("allow_expression"), pb.GetAllowExpression(), found),
		disallow:    expression(at.Field("disallow_expression"), pb.GetDisallowExpression(), found),
		disallowAll: pb.GetDisallowAll().GetValue(),
		fails:       pb.GetDisallowIsError().GetValue(),
	}
}

// expression reads a regular expression, which has to match the whole of a name.
func expression(at *faults.Path, pb *matcherpb.RegexMatcher, found *faults.Faults) *matching.Regex {
	if pb == nil {
		return nil
	}
	re, err := matching.CompileRegex(pb.GetRegex(), true, found.RegexCost)
	if err != nil {
		found.Addf(at.Field("regex"), "%v", err)
	}
	return &re
}

func (r *Rules) allows(name string) bool {
	switch {
	case r.disallowAll, r.disallow != nil && r.disallow.MatchString(name):
		return false
	default:
		return r.allow == nil || r.allow.MatchString(name)
	}
}

// Edits returns the mutations that a service asks for: options, and the removals after them. Those that the Rules disallow are
// left out, or an ErrDisallowed. Any other error says that a mutation is not valid, or that they are too many.
func (r *Rules) Edits(options []*corepb.HeaderValueOption, remove []string) (edits headeredit.Edits, err error) {
	if n := len(options) + len(remove); n > bounds.HeaderEdits {
		return nil, fmt.Errorf("its answer has %d mutations of headers, more than the %d that this client takes", n, bounds.HeaderEdits)
	}
	var disallowed error
	add := func(name string, edit headeredit.Edit) {
		switch {
		case r.allows(name):
			edits = append(edits, edit)
		case r.fails && disallowed == nil:
			disallowed = fmt.Errorf("header %s: %w", bounds.Quote(name), ErrDisallowed)
		}
	}
	for _, option := range options {
		name := option.GetHeader().GetKey()
		value, err := read(option.GetHeader())
		if err != nil {
			return nil, Bounded(err)
		}
		edit, err := headeredit.Set(name, value, option.GetAppendAction())
		if err != nil {
			return nil, Bounded(err)
		}
		add(name, edit)
	}
	for _, name := range remove {
		if err := checkName(name); err != nil {
			return nil, Bounded(err)
		}
		add(name, headeredit.Remove(name))
	}
	return edits, disallowed
}
