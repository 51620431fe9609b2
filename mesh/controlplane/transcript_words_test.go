package controlplane

// The words of transcripts.

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// shortTypes are the types of transcripts.
var shortTypes = map[string]string{
	"lds": typeurl.Listener, "rds": typeurl.RouteConfiguration, "cds": typeurl.Cluster, "eds": typeurl.Endpoints,
	"dpds": dynparam.MapTypeURL, "other": "type.googleapis.com/other", "none": "",
}

func longType(t testing.TB, short string) string {
	t.Helper()
	typeURL, ok := shortTypes[short]
	if !ok {
		t.Fatalf("%q is no type", short)
	}
	return typeURL
}

func shortType(typeURL string) string {
	for short, long := range shortTypes {
		if long == typeURL {
			return short
		}
	}
	return typeURL
}

// splitWord splits a{env=prod}=x into its name, parameters and the rest.
func splitWord(word string) (name string, parameters map[string]string, content string) {
	end := strings.IndexAny(word, "=!{")
	if end < 0 {
		return fullName(word), nil, ""
	}
	name, content = fullName(word[:end]), word[end:]
	if inner, rest, ok := strings.Cut(content, "}"); ok {
		parameters, content = map[string]string{}, rest
		for pair := range strings.SplitSeq(inner[1:], ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				parameters[key] = value
			}
		}
	}
	return name, parameters, content
}

func statusOfWord(t testing.TB, word string) *status.Status {
	t.Helper()
	if word == "!Unreachable" {
		st, err := status.New(codes.Unavailable, "error").WithDetails(dialect.Unreachable())
		xdstest.NoError(t, err)
		return st
	}
	for code := range codes.Code(17) {
		if code.String() == word[1:] {
			return status.New(code, "error")
		}
	}
	t.Fatalf("%q is no error", word)
	return nil
}

// constraintsOfWord reads env=prod,shard=4-6|9.
func constraintsOfWord(t testing.TB, word string) dynparam.Constraints {
	t.Helper()
	var all []dynparam.KeyConstraints
	for pair := range strings.SplitSeq(word, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			continue
		}
		var ranges []dynparam.Range
		for one := range strings.SplitSeq(value, "|") {
			var of dynparam.Range
			if n, _ := fmt.Sscanf(one, "%d-%d", &of.Min, &of.Max); n == 2 {
				ranges = append(ranges, of)
			}
		}
		if ranges == nil {
			all = append(all, dynparam.Require(key, dynparam.Value(value)))
		} else {
			all = append(all, dynparam.Require(key, dynparam.InRanges(ranges...)))
		}
	}
	c, err := dynparam.New(all...)
	xdstest.NoError(t, err)
	return c
}

// shortName is the reverse of fullName.
func shortName(name string) string { return strings.TrimPrefix(name, "xdstp://auth/T/") }

func textOfConstraints(c dynparam.Constraints) string {
	if c.IsZero() {
		return ""
	}
	return strings.NewReplacer(" in [", "=", "] or [", "|", "]", "", ", ", ",").Replace(c.String())
}

func textOfName(t testing.TB, of *discoverypb.ResourceName) string {
	t.Helper()
	c, err := dynparam.FromProto(of.GetDynamicParameterConstraints())
	xdstest.NoError(t, err)
	return shortName(of.GetName()) + textOfConstraints(c)
}

// textOfResource is the bytes of a resource, which are its name and content; of a heartbeat, which has none, its name.
func textOfResource(m *discoverypb.Resource) string {
	switch {
	case m.GetResource() == nil:
		return shortName(m.GetName()) + "=(heartbeat)"
	case m.GetResource().GetTypeUrl() == dynparam.MapTypeURL:
		text := m.GetName() + "=(no constraints)"
		if constraints, err := dynwire.UnmarshalMap(m.GetResource()); err == nil {
			if byType, err := dynparam.ByTypeFromProto(constraints); err == nil {
				text = m.GetName() + "=" + textOfConstraints(byType.For(typeurl.Listener))
			}
		}
		return text + map[bool]string{true: "(private)"}[m.GetCacheControl().GetDoNotCache()]
	default:
		return string(m.GetResource().GetValue())
	}
}
