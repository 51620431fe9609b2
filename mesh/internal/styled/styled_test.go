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
