package xdsclient

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// A denial that names no constraints may have crossed the request for one of the
// subscriptions to the name: then it is for those before only. It is believed of a new one
// when the server repeats it.
func TestDenialThatCrossesARequest(t *testing.T) {
	withdrawals := map[string]func(*answer){
		"removed_resources":                          func(r *answer) { r.RemovedResources = append(r.RemovedResources, "a") },
		"removed_resource_names without constraints": gone("a"),
		"NOT_FOUND":         refuses(codes.NotFound, "a"),
		"PERMISSION_DENIED": refuses(codes.PermissionDenied, "a"),
	}
	for how, withdraw := range withdrawals {
		t.Run(how, func(t *testing.T) {
			overDesks(t, []string{"fail_on_data_errors"}, func(t *testing.T, d *desk) {
				if how == "removed_resources" && !d.delta {
					return // which SotW does not have
				}
				denied := func(e *ear) {
					t.Helper()
					if how == "PERMISSION_DENIED" {
						e.fault(KindServer)
					} else {
						e.fault(KindDoesNotExist)
					}
				}
				_, stop := d.watch("a", "env=prod")
				d.hears("+a{env=prod}")
				d.says(variantOf("a", "env=prod", "p"))
				d.hears()

				// The client moves, and what it moves from is deleted.
				test, _ := d.watch("a", "env=test")
				stop()
				d.says(withdraw) // before the request goes out
				test.silent()
				d.hears("+a{env=test}", "-a{env=prod}")
				d.says(withdraw)
				test.silent()
				d.hears(d.again("a{env=test}")...)
				d.says(variantOf("a", "env=test", "t"))
				test.cluster("t")
				d.hears()
				d.says(withdraw) // nothing is on its way
				denied(test)

				// The client gets another subscription, of which there is nothing.
				late, _ := d.watch("a", "env=late")
				d.hears("+a{env=late}")
				d.says(withdraw)
				late.silent()
				d.hears(d.again("a{env=late}")...)
				d.says(withdraw)
				denied(late)
				d.hears()
			})
		})
	}
}

// A denial that names constraints may have crossed the request that took them up again: then it
// is for the earlier subscription. It is believed of the new one when the server repeats it, or
// says nothing more.
func TestDenialOfAnEarlierSubscription(t *testing.T) {
	denials := map[string]func(*answer){
		"removal":           gone("a", "env=prod"),
		"PERMISSION_DENIED": refuses(codes.PermissionDenied, "a", "env=prod"),
	}
	for how, deny := range denials {
		for _, test := range []struct{ received, silent bool }{{false, false}, {true, false}, {true, true}} {
			received, silent := test.received, test.silent
			t.Run(fmt.Sprintf("%s, received=%t, silent=%t", how, received, silent), func(t *testing.T) {
				overDesks(t, []string{"fail_on_data_errors"}, func(t *testing.T, d *desk) {
					kept := variantOf("kept", "", "1")
					prod := d.movesAwayAndBack()
					if received { // what the first request asked for
						d.says(variantOf("a", "env=prod", "1"), kept)
						prod.cluster("1")
						d.listens()
					}
					d.says(deny, kept) // as it is gone
					prod.silent()
					d.hears(d.again("a{env=prod}")...)
					if silent {
						pass(d.k.channel.expiry.timeout)
						prod.fault(KindDoesNotExist)
						return
					}
					d.says(variantOf("a", "env=prod", "2"), kept)
					prod.cluster("2")
					d.listens()

					// A denial after the doubt is believed at the latest when it is repeated.
					d.says(deny, kept)
					d.listens()
					d.says(deny, kept)
					if how == "removal" {
						prod.fault(KindDoesNotExist)
					} else {
						prod.fault(KindServer)
					}
				})
			})
		}
	}
}

// A denial that names no constraints is believed at once where it cannot have crossed the
// request: there was nothing under the name before, or the server has answered a later
// request.
func TestDenialThatCannotHaveCrossed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		one, two := d.watchBoth("env=prod", "env=test")
		d.says(gone("a"))
		allFault(KindDoesNotExist, one, two)
		d.hears()

		late, _ := d.watch("a", "env=late")
		d.hears("+a{env=late}")
		other, _ := d.watch("b", "env=prod")
		d.hears("+b{env=prod}")
		d.says(variantOf("b", "env=prod", "p"))
		other.cluster("p")
		d.says(gone("a"))
		late.fault(KindDoesNotExist)
		d.hears()

		// Nor is it doubted because of a name that was given up long ago.
		_, stop := d.watch("c", "env=prod")
		d.hears("+c{env=prod}")
		stop()
		d.hears("-c{env=prod}")
		newer, _ := d.watch("d", "env=prod")
		d.hears("+d{env=prod}")
		d.says(variantOf("d", "env=prod", "p"))
		newer.cluster("p")
		again, _ := d.watch("c", "env=test")
		d.hears("+c{env=test}")
		d.says(gone("c"))
		again.fault(KindDoesNotExist)
		d.hears()
	})
}

// Of many names that were given up, each counts as one that the server may know of.
func TestManyNamesThatWereGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		d.watch("kept")
		var stops []func()
		for i := range ads.MaxLeftOut + 10 {
			_, stop := d.watch(fmt.Sprint("c", i))
			stops = append(stops, stop)
		}
		d.listens()
		for _, stop := range stops {
			stop()
		}
		d.listens()
		// Any may have been one that is not remembered.
		e, _ := d.watch("c0", "env=prod")
		d.listens()
		d.says(gone("c0"))
		e.silent()
		d.listens()
		d.says(gone("c0"))
		e.fault(KindDoesNotExist)
	})
}

// What a server denies while nobody watches it, and the server has not been told so, is
// asked for again by the next watch, which hears nothing of the denial: DPDS may move a
// client away from a variant and back before its requests go out, and the variant be there
// again.
func TestDenialThatNobodyHears(t *testing.T) {
	denials := map[string]func(*answer){
		"removal":           gone("a", "env=prod"),
		"PERMISSION_DENIED": refuses(codes.PermissionDenied, "a", "env=prod"),
		"INTERNAL":          refuses(codes.Internal, "a", "env=prod"),
	}
	for how, deny := range denials {
		for _, features := range [][]string{nil, {"fail_on_data_errors"}} {
			t.Run(fmt.Sprint(how, features), func(t *testing.T) {
				overDesks(t, features, func(t *testing.T, d *desk) {
					keeping := variantOf("keeps the stream open", "", "1")
					d.watch("keeps the stream open")
					_, stop := d.watch("a", "env=prod")
					d.hears("+a{env=prod}", "+keeps the stream open")
					d.says(variantOf("a", "env=prod", "1"), keeping)
					d.hears()
					stop()
					d.says(deny, keeping)
					again, _ := d.watch("a", "env=prod")
					again.silent()
					d.hears(d.again("a{env=prod}")...)
					d.says(variantOf("a", "env=prod", "1"), keeping)
					again.cluster("1")

					// Without another watch it is given up.
					_, stop = d.watch("b", "env=prod")
					d.hears("+b{env=prod}")
					stop()
					d.says(gone("b", "env=prod"), variantOf("a", "env=prod", "1"), keeping)
					d.hears("-b{env=prod}")
				})
			})
		}
	}
}
