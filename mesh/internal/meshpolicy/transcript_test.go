package meshpolicy_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// TestTranscripts reads policies. The cases in testdata/transcripts are followed by what comes of them: errors, and the policies with their
// notes, and with their rules as they are explained. Behind the name of a section is "documents", or "MeshHTTPRoute", "GRPCRoute" or "HTTPRoute",
// of which the input is the rules for the service s. Lines "for TAG=VALUE,... to SERVICE" are clients whose rules are explained, in place of one
// without tags; the tag service is the client's service. "a×254" is 254 times a.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/transcripts/*.txt", readAgain)
}

var (
	repeated = regexp.MustCompile(`(.)×(\d+)`)
	client   = regexp.MustCompile(`(?m)^for (\S*) ?to (\S+)\n?`)
)

// readAgain returns what comes of the input of a case.
func readAgain(section, input string) string {
	text := repeated.ReplaceAllStringFunc(client.ReplaceAllString(input+"\n", ""), func(long string) string {
		of := repeated.FindStringSubmatch(long)
		n, _ := strconv.Atoi(of[2])
		return strings.Repeat(of[1], n)
	})
	form := section[strings.LastIndex(section, ": ")+2:]
	switch indented := "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"; form {
	case meshpolicy.DocumentKind:
		text = policytest.Text(strings.ReplaceAll("  "+indented, "\n  ", "\n    "))
	case meshpolicy.GRPCRouteKind, meshpolicy.HTTPRouteKind:
		text = route(form, indented)
	}
	policies, err := parse(text)
	var said strings.Builder
	if err != nil {
		fmt.Fprintln(&said, err)
	}
	for _, p := range policies {
		for _, n := range p.Notes {
			fmt.Fprintf(&said, "line %d: %s: %s\n", n.Line, n.Path, n.Problem)
		}
		for i := range p.To {
			fmt.Fprintf(&said, "%s for %v to %v\n", p.Name, p.To[i].Clients, p.To[i].TargetRef)
			for _, r := range p.To[i].Rules {
				if r.Session != nil {
					fmt.Fprintf(&said, "session %+v\n", *r.Session)
				}
			}
		}
	}
	clients := client.FindAllStringSubmatch(input+"\n", -1)
	if len(clients) == 0 && len(policies) > 0 {
		fmt.Fprint(&said, policytest.Merge(policies, meshpolicy.Client{}, "s"))
	}
	for _, of := range clients {
		c := meshpolicy.Client{Tags: map[string]string{}}
		for pair := range strings.SplitSeq(of[1], ",") {
			if key, value, _ := strings.Cut(pair, "="); key == meshpolicy.ServiceKey {
				c.Service = value
			} else {
				c.Tags[key] = value
			}
		}
		fmt.Fprintf(&said, "%sto %s:\n%v", strings.TrimPrefix("for "+of[1]+" ", "for  "), of[2], policytest.Merge(policies, c, of[2]))
	}
	return shorten(said.String())
}

// parse reads documents.
func parse(text string) ([]*meshpolicy.Policy, error) {
	var faults document.Faults
	var policies []*meshpolicy.Policy
	for _, doc := range document.Parse("f", []byte(text), &faults) {
		kind := doc.Peek("kind").Text()
		if kind != meshpolicy.GRPCRouteKind && kind != meshpolicy.HTTPRouteKind {
			kind = meshpolicy.DocumentKind
		}
		if p := meshpolicy.Read(doc, kind, nil); p != nil {
			policies = append(policies, p)
		}
	}
	return policies, faults.Err()
}

// shorten is the inverse of repeating.
func shorten(text string) string {
	var short strings.Builder
	for text != "" {
		_, size := utf8.DecodeRuneInString(text)
		rest := strings.TrimLeft(text, text[:size])
		if n := len(text) - len(rest); n < 100 {
			short.WriteString(text[:n])
		} else {
			fmt.Fprintf(&short, "%s×%d", text[:size], n/size)
		}
		text = rest
	}
	return short.String()
}
