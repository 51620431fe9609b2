package explore

import (
	"slices"
	"testing"
)

// counter is a trial whose events are steps; it must not be at 4.
type counter struct {
	at int
	Tale
}

func (c *counter) Do(step int) {
	c.at += step
	c.Tell("now %d", c.at)
	if c.at == 4 {
		c.Fail("at %d", c.at)
		c.Fail("again")
	}
}

func (c *counter) Encode(e *Encoder) { e.Number(uint64(c.at)) }
func (c *counter) Next() []int       { return []int{1, 3} }
func (c *counter) End()              {}

func (c *counter) Settle() int {
	c.Tell("silent")
	return 0
}

func TestShortestPathIsDescribed(t *testing.T) {
	r := Run(func() Trial[int] { return new(counter) }, new(Encoder), 0)
	if want := []int{1, 3}; r.Fault != "at 4" || !slices.Equal(r.Path, want) {
		t.Errorf("fault %q by path %v, want \"at 4\" by %v", r.Fault, r.Path, want)
	}
	if got, want := Describe(new(counter), r.Path), "\tnow 1\n\tnow 4\n\tfault: at 4"; got != want {
		t.Errorf("the path is described as %q, want %q", got, want)
	}
	if got, want := Describe(new(counter), []int{1}), "\tnow 1\n\tuntil silence:\n\tsilent"; got != want {
		t.Errorf("a path without a fault is described as %q, want %q", got, want)
	}
}

// bounded is a scope.
type bounded struct {
	user  int
	start string
	full  bool
}

func TestOverride(t *testing.T) {
	b := bounded{user: 1, start: "0"}
	if Override(&b, "user=3 start=01 full=1"); b != (bounded{3, "01", true}) {
		t.Errorf("the scope is %+v", b)
	}
}
