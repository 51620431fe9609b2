package lease

import "testing"

func TestALeaseEndsOnceAndEmpty(t *testing.T) {
	t.Parallel()
	idle := 0
	l := New(func() { idle++ })
	one, _ := l.Take()
	two, _ := l.Take()
	one.Release()
	l.End()
	if _, ok := l.Take(); ok || idle != 0 {
		t.Fatalf("taken after the end: %v; idle %d times with a hold on it", ok, idle)
	}
	two.Release()
	if _, ok := l.Take(); ok || idle != 1 {
		t.Errorf("taken after the end: %v; idle %d times, want once", ok, idle)
	}
	if _, ok := (*Lease)(nil).Take(); !ok {
		t.Error("no lease lets no RPC through")
	}
}
