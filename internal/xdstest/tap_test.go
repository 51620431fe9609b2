package xdstest

import (
	"context"
	"fmt"
	"testing"
)

func TestTap_KeepsTheNewestAndWaitsOn(t *testing.T) {
	t.Parallel()
	r := NewTap()
	const total = maxRecorded*2 + 10
	for i := range total {
		r.add(Request{TypeURL: fmt.Sprint(i)})
	}
	all := r.Requests()
	if len(all) > maxRecorded || len(all) < maxRecorded/2 || all[len(all)-1].TypeURL != fmt.Sprint(total-1) {
		t.Fatalf("%d are kept, up to %s", len(all), all[len(all)-1].TypeURL)
	}
	first, err := r.Wait(context.Background(), func(Request) bool { return true })
	if err != nil || first.TypeURL != all[0].TypeURL {
		t.Errorf("the first that is left is %s, Wait found %s, %v", all[0].TypeURL, first.TypeURL, err)
	}
	last, err := r.Wait(context.Background(), Subscribing(fmt.Sprint(total-1)))
	if err != nil || last.TypeURL != all[len(all)-1].TypeURL {
		t.Errorf("Wait found %s, %v", last.TypeURL, err)
	}
}
