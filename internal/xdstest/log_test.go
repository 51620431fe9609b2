package xdstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestLog(t *testing.T) {
	t.Parallel()
	ctx, l := testutils.Context(t), new(xdstest.Log)
	fmt.Fprint(l, "one: a\ntwo: a\n")
	if got := l.Count("a"); got != 2 {
		t.Errorf("%d lines have a, want 2", got)
	}
	if got := l.Count("two", "a"); got != 1 {
		t.Errorf("%d lines have two and a, want 1", got)
	}
	if got := l.After(": "); !slices.Equal(got, []string{"a", "a"}) {
		t.Errorf("after the colon: %q", got)
	}
	waited := make(chan error, 1)
	go func() { waited <- l.Wait(ctx, "three") }()
	fmt.Fprint(l, "three\n")
	if err := <-waited; err != nil {
		t.Error(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.Wait(canceled, "four"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "three") {
		t.Errorf("error: %v", err)
	}
}
