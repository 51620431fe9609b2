package resolver

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/internal/inspect"
)

func TestInspectBoundsWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := configured(t)
	var many []string
	for i := range 3 * inspect.MaxWaits {
		many = append(many, fmt.Sprint("c", i))
	}
	f.answer("RouteConfiguration R", routes("R", many...))
	if c := f.graph.inspect(); len(c.WaitsFor) != inspect.MaxWaits || c.Waits != len(many) {
		t.Errorf("%d of %d clusters that are waited for are named, want %d of %d", len(c.WaitsFor), c.Waits, inspect.MaxWaits, len(many))
	}
}
