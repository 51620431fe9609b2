package folder

import (
	"regexp"

	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// tlsModes are the modes of TLS by their names.
var tlsModes = map[string]meshroute.TLSMode{
	"mutual": meshroute.TLSMutual, "simple": meshroute.TLSSimple, "off": meshroute.TLSOff,
}

const (
	// defaultProvider is the certificate provider instance unless the document names another.
	defaultProvider = "default"
	// systemRoots are the roots of the client's system.
	systemRoots = "system"
)

// readTLS reads how the connections to a service are secured. It returns nil for a service
// that does not say.
//
//	tls:
//	  mode: mutual
//	  providers: {identity: default, roots: default}
//	  subjectAltNames:
//	  - spiffe://example.com/backend
//	  - {prefix: spiffe://example.com/backend/, ignoreCase: true}
//	  sni: backend.example.com
func readTLS(v document.Value) *meshroute.TLS {
	if !v.Present() {
		return nil
	}
	o := v.Object("mode", "providers", "subjectAltNames", "sni")
	t := &meshroute.TLS{Mode: tlsModes[o.Require("mode").OneOf("mutual", "simple", "off")], SNI: o.Field("sni").Text(), Source: source(v)}
	providers := o.Field("providers").Object("identity", "roots")
	t.Identity, t.Roots = readProvider(providers.Field("identity")), readProvider(providers.Field("roots"))
	if t.Identity == systemRoots {
		providers.Field("identity").Fault("name an entry of certificate_providers in the clients' bootstraps", "%q has roots, and no certificate", systemRoots)
	}
	if t.Roots == systemRoots {
		t.Roots = ""
	}
	for _, item := range o.Field("subjectAltNames").Items() {
		t.SANs = append(t.SANs, readSAN(item))
	}
	return t
}

func readProvider(v document.Value) string {
	if !v.Present() {
		return defaultProvider
	}
	return v.NonEmptyText("the name of an entry of certificate_providers in the clients' bootstraps")
}

// readSAN reads what a subject alternative name has to match: a string, exactly, or an object with
// one condition.
func readSAN(v document.Value) *matcherpb.StringMatcher {
	if v.IsText() {
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: readPattern(v)}}
	}
	o := v.Object("exact", "prefix", "suffix", "contains", "regex", "ignoreCase")
	m := &matcherpb.StringMatcher{IgnoreCase: o.Field("ignoreCase").Bool()}
	conditions := 0
	for _, name := range o.Names() {
		if name == "ignoreCase" {
			continue
		}
		conditions++
		at := o.Field(name)
		pattern := readPattern(at)
		if name != "regex" { // then the message has a field of that name
			m.ProtoReflect().Set(m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOfString(pattern))
			continue
		}
		if _, err := regexp.Compile(pattern); err != nil {
			at.Fault("", "%v", err)
		}
		if m.IgnoreCase {
			at.Fault("write (?i) at its beginning", "ignoreCase has no effect on a regular expression")
		}
		m.MatchPattern = &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: pattern}}
	}
	if v.IsObject() && conditions != 1 {
		v.Fault("use one of exact, prefix, suffix, contains and regex", "expected one condition, found %d", conditions)
	}
	return m
}

// readPattern reads a text that is not empty, as an empty one would match every name or none.
func readPattern(v document.Value) string {
	return v.NonEmptyText("a subject alternative name, or a part of one")
}
