package styled_test

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

func TestTheWorstStateDecides(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		states []string
		want   styled.Style
	}{
		{nil, styled.Plain},
		{[]string{"", "UNKNOWN", "?"}, styled.Plain},
		{[]string{"HEALTHY", ""}, styled.Good},
		{[]string{"HEALTHY", "CONNECTING"}, styled.Doubtful},
		{[]string{"TRANSIENT_FAILURE", "HEALTHY"}, styled.Bad},
	} {
		xdstest.Equal(t, "style", test.want, styled.OfState(test.states...))
	}
}

// Whatever peers say, it cannot move a terminal's cursor or begin a line of its own.
func TestHostileTextIsText(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\nroute \u202e\x00\xff\u009b31m<script>"
	var text styled.Text
	text.Add(styled.Plain, "a %s  ", evil)
	var table styled.Table
	table.Row(styled.Plain, evil, "b")
	text.AddTable("  ", table)
	const shown = `\x1b[2J\nroute \u202e\x00` + "\ufffd" + `\u009b31m<script>`
	xdstest.Equal(t, "the text", "a "+shown+"\n  "+shown+"  b\n", text.String())
}
