package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

const documentsFile = "testdata/documents.txt"

// section is a document of documentsFile and what follows it.
type section struct {
	before, document, steps []string
}

// sectionsOf reads documentsFile. A section begins with "== NAME" and ends with an empty line. After its document follows, behind "->", what is
// wrong with it, or else what it says beside what the least of documents says; and then what is asked of it:
//
//	> listener AUTHORITY ENDPOINT     the name of a Listener; - is nothing
//	> authority NAME                  the servers of an authority
//	> with OLD => NEW                 whether a document with another text is for the same client, and has the same servers
//	> through TARGET                  the document for clients of a relay
//	> service [trusted] MESSAGE       the service of a GoogleGrpc message, by the type of its credentials
//
// A document that begins with a comma lacks its server, and golden.Repeat says what <<TEXT*N>> is.
func sectionsOf(t testing.TB) (sections []section) {
	t.Helper()
	for text := range strings.SplitSeq(golden.Read(t, documentsFile), "\n\n") {
		lines := slices.DeleteFunc(strings.Split(strings.TrimSuffix(text, "\n"), "\n"), func(line string) bool { return strings.HasPrefix(line, "-> ") })
		from := 1 + slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "== ") })
		to := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "> ") })
		if to < 0 {
			to = len(lines)
		}
		sections = append(sections, section{lines[:from], lines[from:to], lines[to:]})
	}
	return sections
}

func (s section) text() string {
	text := strings.Join(s.document, "\n")
	if strings.HasPrefix(text, ",") {
		text = "{" + servers + text + "}"
	}
	return golden.Repeat(text)
}

// documentOf returns a document of documentsFile.
func documentOf(t testing.TB, name string) string {
	t.Helper()
	for _, s := range sectionsOf(t) {
		if s.before[len(s.before)-1] == "== "+name {
			return s.text()
		}
	}
	t.Fatalf("there is no document %q", name)
	return ""
}

func TestDocuments(t *testing.T) {
	var all []string
	for _, s := range sectionsOf(t) {
		lines := slices.Concat(s.before, s.document)
		print := func(said []string) {
			for _, line := range said {
				// Decoders like to repeat what they choke on; a key must not reach a log so.
				for _, secret := range []string{"s3cret", "5551234", "quoted", fmt.Sprint([]byte(`"s3cret-token`))[:30]} {
					if strings.Contains(line, secret) {
						t.Errorf("%s: %q is shown: %s", s.before, secret, line)
					}
				}
				lines = append(lines, "-> "+strings.ReplaceAll(line, channelTypes.types(), "TYPES"))
			}
		}
		c, err := Parse("test", []byte(s.text()))
		print(sayOf(t, c, err))
		for _, step := range s.steps {
			lines = append(lines, step)
			print(s.follow(t, c, strings.TrimPrefix(step, "> ")))
		}
		all = append(all, strings.Join(lines, "\n"))
	}
	golden.Check(t, documentsFile, strings.Join(all, "\n\n")+"\n")
}

// follow returns what follows from a step.
func (s section) follow(t *testing.T, c *Config, step string) []string {
	verb, rest, _ := strings.Cut(step, " ")
	first, second, _ := strings.Cut(rest, " ")
	switch verb {
	case "listener":
		authority, err := url.PathUnescape(strings.Trim(first, "-"))
		xdstest.NoError(t, err)
		name, err := c.ListenerName(authority, strings.Trim(second, "-"))
		if err != nil {
			return []string{err.Error()}
		}
		return []string{name}
	case "authority":
		a, err := c.Authority(strings.Trim(first, "-"))
		if err != nil {
			return []string{err.Error()}
		}
		return []string{fmt.Sprint(a.Servers)}
	case "service":
		trusted := first == "trusted"
		if trusted {
			rest = second
		}
		pb := new(corev3.GrpcService_GoogleGrpc)
		xdstest.NoError(t, prototext.Unmarshal([]byte(strings.ReplaceAll(rest, "TYPES.", pluginTypes)), pb))
		service, err := c.Service(pb, trusted)
		if err != nil {
			return []string{err.Error()}
		}
		_, release, err := service.DialOptions()
		xdstest.NoError(t, err)
		release()
		return []string{service.CredentialsType}
	case "through":
		document := c.Through(rest)
		mustParse(t, string(document))
		return []string{string(document)}
	case "with":
		old, text, ok := strings.Cut(rest, " => ")
		changed := strings.Replace(s.text(), old, text, 1)
		if !ok || changed == s.text() {
			t.Fatalf("nothing changes: %s", step)
		}
		other := mustParse(t, changed)
		said := "the same client"
		if other.Fingerprint() != c.Fingerprint() {
			said = "another client"
		}
		for i, server := range c.Servers {
			if other.Servers[i].Key() != server.Key() {
				said += fmt.Sprintf(", another server %d", i)
			}
		}
		return []string{said}
	default:
		t.Fatalf("unknown step %q", step)
		return nil
	}
}

// sayOf prints what a document says beside what the least document does, or its errors.
func sayOf(t *testing.T, c *Config, err error) (lines []string) {
	t.Helper()
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if err != nil {
		var found *Faults
		if !errors.As(err, &found) {
			t.Fatalf("Parse returned %v, want a *Faults", err)
		}
		for _, fault := range found.List {
			say("%v", fault)
		}
		if found.Omitted > 0 {
			lines = append(lines[:3:3], fmt.Sprintf("and %d more, and %d omitted", len(lines)-3, found.Omitted))
		}
		return lines
	}
	least := mustParse(t, "{"+servers+"}")
	if c.Servers[0].Key() != least.Servers[0].Key() {
		sayServers(t, say, "", c.Servers)
	}
	if !proto.Equal(c.Node, least.Node) {
		l := c.Node.GetLocality()
		metadata, err := json.Marshal(c.Node.GetMetadata().AsMap())
		xdstest.NoError(t, err)
		say("node %q of %q in %s/%s/%s, %s %s with %s: %.100s", c.Node.GetId(), c.Node.GetCluster(), l.GetRegion(), l.GetZone(), l.GetSubZone(),
			c.Node.GetUserAgentName(), c.Node.GetUserAgentVersion(), c.Node.GetClientFeatures(), metadata)
	}
	if len(c.Authorities) > 0 {
		say("authorities %q", slices.Sorted(maps.Keys(c.Authorities)))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Authorities)) {
		a := c.Authorities[name]
		if a.ClientListenerTemplate != xdsname.AuthorityPrefix(name)+"envoy.config.listener.v3.Listener/%s" {
			say("authority %q: Listeners %s", name, a.ClientListenerTemplate)
		}
		if a.DynamicParameterConstraintsResource != "" {
			say("authority %q: constraints %s", name, a.DynamicParameterConstraintsResource)
		}
		if a.Servers[0] != c.Servers[0] { // gRFC A47: "If not specified, the top-level server list is used."
			sayServers(t, say, fmt.Sprintf("authority %q: ", name), a.Servers)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.CertificateProviders)) {
		p := c.CertificateProviders[name]
		say("certificates %q: %s, there is a plugin: %t, %s", name, p.PluginName, p.Buildable != nil, p.Config)
	}
	for _, name := range slices.Sorted(maps.Keys(c.AllowedServices)) {
		say("service %q: %s", name, c.AllowedServices[name].CredentialsType)
	}
	if c.ClientListenerTemplate != "%s" || c.ServerListenerTemplate != "" {
		say("Listeners %s, of servers %s", c.ClientListenerTemplate, c.ServerListenerTemplate)
	}
	for _, name := range []string{"envoy.config.listener.v3.Listener", "envoy.config.cluster.v3.Cluster"} {
		if own := c.Constraints.For(name); !own.IsZero() {
			say("constraints for %s: %.100s", name, own)
		}
	}
	if c.DNSFallback != DNSFallbackNotFound || c.DNSFallbackGiven {
		say("DNS fallback: %s, given: %t", c.DNSFallback, c.DNSFallbackGiven)
	}
	if c.ResourceCache.Directory != "" {
		say("resource cache: %s for %s", c.ResourceCache.Directory, c.ResourceCache.MaxAge)
	}
	for _, warning := range c.Warnings {
		say("warning: %s", warning)
	}
	return lines
}

// sayServers prints servers, and what comes of dialling them.
func sayServers(t *testing.T, say func(string, ...any), of string, servers []*Server) {
	t.Helper()
	for _, s := range servers {
		var calls []string
		for _, c := range s.call {
			calls = append(calls, c.name)
		}
		say("%sserver %s by %s %s, features %s", of, s, s.CredentialsType, calls, s.Features)
		warnings := func() []string { return logged.After(" management server " + s.URI + " ") }
		before := len(warnings())
		for range 2 { // a warning comes once
			options, release, err := s.DialOptions()
			if err != nil {
				say("%sserver %s cannot be dialled: %v", of, s, err)
				break
			}
			release()
			xdstest.Equal(t, "options", 1+len(calls), len(options))
		}
		for _, warning := range warnings()[before:] {
			say("logged of server %s: %s", s, warning)
		}
		if !strings.HasPrefix(s.CredentialsType, "test-") && s.CredentialsType != "" {
			bundle, _, err := s.channel()
			xdstest.NoError(t, err)
			xdstest.Equal(t, "security protocol", s.CredentialsType, bundle.TransportCredentials().Clone().Info().SecurityProtocol)
		}
	}
}
