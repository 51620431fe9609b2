package xdstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestLog(t *testing.T) {
	t.Parallel()
	ctx, l := testutils.Context(t), new(xdstest.Log)
	fmt.Fprint(l, "one: a\ntwo: a\n")
	xdstest.Equal(t, "lines that have a", 2, l.Count("a"))
	xdstest.Equal(t, "lines that have two and a", 1, l.Count("two", "a"))
	xdstest.Equal(t, "after the colon", []string{"a", "a"}, l.After(": "))
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
