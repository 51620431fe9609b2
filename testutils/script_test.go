package testutils_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/testutils"
)

// scriptWords are short forms in scripts, and scriptTypes the types of resources.
var (
	scriptWords = strings.NewReplacer("d:", globDir)
	scriptTypes = map[string]string{"lds": lds, "cds": cds, "rds": rds, "eds": eds, "srds": srds}
)

const globDir = "xdstp://a/envoy.config.cluster.v3.Cluster/d/"

// side is a server and its clients, which speak one protocol.
type side struct {
	server *testutils.FakeServer
	peers  map[string]*peer
}

// TestScripts has what clients are sent by each protocol. testdata says what the steps are.
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 0, func(tb testing.TB) func(string) string {
		t := tb.(*testing.T)
		sides := map[string]*side{}
		for protocol, other := range map[string]string{"SotW": "(delta)", "delta": "(SotW)"} {
			if !strings.Contains(t.Name(), other) {
				sides[protocol] = &side{testutils.StartFakeServer(t), map[string]*peer{}}
			}
		}
		return func(line string) string {
			results := map[string]string{}
			for protocol, s := range sides {
				words := strings.Fields(scriptWords.Replace(line))
				if only := words[len(words)-1]; sides[only] == nil || only == protocol {
					results[protocol] = strings.ReplaceAll(s.step(t, protocol, strings.Join(words, " ")), globDir, "d:")
				}
			}
			sotw, delta := results["SotW"], results["delta"]
			if len(results) == 2 && sotw != delta {
				return "SotW: " + sotw + " | delta: " + delta
			}
			return max(sotw, delta)
		}
	})
}

// step does a step, and returns what comes of it.
func (s *side) step(t *testing.T, protocol, line string) string {
	words := strings.Fields(line)
	if p := s.peers[words[0]]; p != nil {
		return p.step(s.server, words[1], words[2:])
	}
	if words[0] == "open" {
		p := openPeer(t, s.server, protocol == "delta")
		p.byLocators = words[len(words)-1] == "locators"
		s.peers[words[1]] = p
		return ""
	}
	s.server.Update(t, func(tx *testutils.Tx) {
		for change := range strings.SplitSeq(line, " + ") {
			words := strings.Fields(change)
			typeURL, locator := scriptTypes[words[1]], inWords(words[2])
			name, parameters := split(locator)
			denied := status.New(codes.PermissionDenied, "no")
			switch verb := words[0]; {
			case verb == "set":
				put(tx, typeURL, locator, words[3])
			case verb == "delete" && parameters == nil:
				tx.Delete(typeURL, name)
			case verb == "delete":
				tx.DeleteVariant(typeURL, name, parameters)
			case verb == "deny" && parameters == nil:
				tx.SetError(typeURL, name, denied)
			case verb == "deny":
				tx.SetVariantError(typeURL, name, parameters, denied)
			default:
				t.Fatalf("no step %q", change)
			}
			clear(parameters) // The update has its own.
		}
	})
	return ""
}

// inWords returns "name key=value key=value" for "name?key=value&key=value".
func inWords(locator string) string { return strings.NewReplacer("?", " ", "&", " ").Replace(locator) }

func (p *peer) step(s *testutils.FakeServer, verb string, words []string) string {
	switch verb {
	case "subscribe", "unsubscribe":
		locators := make([]string, 0, len(words))
		for _, word := range words[1:] {
			locators = append(locators, inWords(word))
		}
		if verb == "subscribe" {
			p.subscribe(scriptTypes[words[0]], locators...)
		} else {
			p.unsubscribe(scriptTypes[words[0]], locators...)
		}
	case "locators":
		p.byLocators = true
	case "has":
		n, err := strconv.Atoi(words[0])
		xdstest.NoError(p.t, err)
		p.awaitLocators(s, n)
	case "receives":
		typeURL, items := p.next()
		return strings.TrimSpace(typeurl.ShortName(typeURL) + " " + strings.Join(items, ", "))
	case "ends":
		return fmt.Sprint(status.Code(p.wire.RecvMsg(nil)))
	default:
		p.t.Fatalf("no step %q", verb)
	}
	return ""
}
