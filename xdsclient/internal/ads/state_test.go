package ads

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestTableOnPage prints the table on the page about the protocol.
func TestTableOnPage(t *testing.T) {
	const page, begin, end = "../../../docs/internals/architecture.md", "<!-- table of states -->\n", "<!-- end -->\n"
	before, rest, _ := strings.Cut(golden.Read(t, page), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no place for the table", page)
	}
	golden.Check(t, page, before+begin+"\n"+tableText()+"\n"+end+after)
}

// tableText is the table in Markdown.
func tableText() string {
	var b strings.Builder
	b.WriteString("| event | states | next | effect |\n| --- | --- | --- | --- |\n")
	for _, r := range table {
		var in []string
		for _, s := range r.in {
			in = append(in, stateNames[s])
		}
		if len(in) == int(states) {
			in = []string{"any"}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", eventNames[r.on], strings.Join(in, ", "), stateNames[r.next], effectNames[r.effect])
	}
	return b.String()
}

var (
	eventNames = [events]string{
		"Listed", "LeftOut", "NotListed", "Crossed", "Contested", "DeniedForAnother", "Omitted", "OmittedEarlier", "TimedOut", "WatchedAgain", "Reopened",
		"Sent", "Denied", "Errored", "DeniedUnwatched", "Forgotten", "Closed",
	}
	effectNames = [...]string{"Ignore", "Note", "Ask", "Tell"}
)

// There is one rule for a state and an event.
func TestRulesAreUnambiguous(t *testing.T) {
	t.Parallel()
	for i := range table {
		for _, s := range table[i].in {
			if e := table[i].on; rules[s][e] != &table[i] {
				t.Errorf("there are two rules for %s in state %s", eventNames[e], stateNames[s])
			}
		}
	}
}
