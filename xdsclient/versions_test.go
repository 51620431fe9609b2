package xdsclient

import (
	"strings"
	"testing"
)

// There is one version by name, of which a server takes it that all subscriptions have it.
func TestVersionsOfNamesBesideTheirCollection(t *testing.T) {
	tests := []transcriptTest{}
	// A subscription that began while the server was away, to a member of a collection that the client has, or
	// to the collection of a resource that it has, has the server asked for all again.
	for first, second := range map[string]string{"dir/a": "dir/*", "dir/*": "dir/a"} {
		got, reported := "dir/a = x", "dir/a ambient: unreachable"
		if first == "dir/*" {
			got, reported = "dir/* member dir/a = x; dir/* collection", "dir/* ambient: unreachable"
		}
		tests = append(tests, transcriptTest{name: first + " first", over: "delta", steps: strings.NewReplacer(
			"FIRST", first, "SECOND", second, "GOT", strings.ReplaceAll(got, "member dir/", "member "), "REPORTED", reported).Replace(`
			# The others are asked for again in any case.
			watch FIRST a b        -> stream; req +a +b +FIRST
			send 1 dir/a=x a=x b=x -> ack 1; GOT; a = x; b = x
			refuse
			break
			wait 1m                -> a ambient: unreachable; b ambient: unreachable; REPORTED
			watch second=SECOND    -> ` + map[string]string{"dir/a": "second: unreachable", "dir/*": "second collection: unreachable"}[second] + `
			accept
			wait 8s                -> stream; req +a +b +dir/* +dir/a has a@ b@1 dir/a@
		`)})
	}
	// A delta response does not say what it answers. One to a name that comes after the wildcard was asked for
	// is taken as the beginning of the answer for both. If the stream ends before the rest, the wildcard lacks
	// the resources that the client had before by their names, and has to be sent these.
	for name, dir := range map[string]string{"wildcard": "", "glob collection": "dir/"} {
		tests = append(tests, transcriptTest{name: name, over: "delta", steps: strings.ReplaceAll(`
			watch DIRa           -> stream; req +DIRa
			send 1 DIRa=x        -> ack 1; DIRa = x
			watch DIRb           -> req +DIRb
			watch c=DIR*         -> req +DIR*
			send 2 DIRb@1=x      -> ack 2; DIRb = x; c member b = x; c collection
			break
			wait 1s              -> stream; req +DIR* +DIRa +DIRb has DIRa@ DIRb@1
			send 3 DIRa@1=x      -> ack 3; c member a = x
			break
			wait 1s              -> stream; req +DIR* +DIRa +DIRb has DIRa@1 DIRb@1
		`, "DIR", dir)})
	}
	runTranscripts(t, tests)
}
