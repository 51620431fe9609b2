package sidechannel

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/metadata"

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
	value := string(pb.GetRawValue())
	if value == "" {
		value = pb.GetValue()
	}
	switch {
	case len(value) > maxLength:
		return "", fmt.Errorf("header %q: the value has %d bytes, more than %d", pb.GetKey(), len(value), maxLength)
	case strings.HasSuffix(pb.GetKey(), "-bin"):
		decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
		if err != nil {
			return "", fmt.Errorf("header %q: the value of a -bin header must be in base64", pb.GetKey())
		}
		return string(decoded), nil
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", fmt.Errorf("header %q: gRPC does not allow a character in the value", pb.GetKey())
	}
	return value, nil
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
var ErrDisallowed = errors.New("decoder_header_mutation_rules disallow it, with disallow_is_error")

// ParseRules reads HeaderMutationRules; nil is valid. Errors name the fields of pb.
func ParseRules(pb *mutationpb.HeaderMutationRules) (r Rules, err error) {
	r.disallowAll, r.fails = pb.GetDisallowAll().GetValue(), pb.GetDisallowIsError().GetValue()
	if r.allow, err = expression("allow_expression", pb.GetAllowExpression()); err != nil {
		return r, err
	}
	r.disallow, err = expression("disallow_expression", pb.GetDisallowExpression())
	return r, err
}

// expression reads a regular expression, which has to match the whole of a name.
func expression(field string, pb *matcherpb.RegexMatcher) (*matching.Regex, error) {
	if pb == nil {
		return nil, nil
	}
	re, _, err := matching.CompileRegex(pb.GetRegex(), true)
	if err != nil {
		return nil, fmt.Errorf("%s.regex %w", field, err)
	}
	return &re, nil
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
// left out, or an ErrDisallowed. Any other error says that a mutation is not valid.
func (r *Rules) Edits(options []*corepb.HeaderValueOption, remove []string) (edits headeredit.Edits, err error) {
	var disallowed error
	add := func(name string, edit headeredit.Edit) {
		switch {
		case r.allows(name):
			edits = append(edits, edit)
		case r.fails && disallowed == nil:
			disallowed = fmt.Errorf("header %q: %w", name, ErrDisallowed)
		}
	}
	for _, option := range options {
		name := option.GetHeader().GetKey()
		value, err := read(option.GetHeader())
		if err != nil {
			return nil, err
		}
		edit, err := headeredit.Set(name, value, option.GetAppendAction())
		if err != nil {
			return nil, err
		}
		add(name, edit)
	}
	for _, name := range remove {
		if err := checkName(name); err != nil {
			return nil, err
		}
		add(name, func(md metadata.MD) { delete(md, name) })
	}
	return edits, disallowed
}
