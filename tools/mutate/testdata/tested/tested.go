// Package tested has tests that see some faults and not others.
package tested

const limit = 10

type flag bool

var total int

func atLeast(n int) string {
	if n >= limit && n != 11 {
		total++
		return "many"
	}
	return "few"
}

func unreached(n int) {
	if n == 0 {
		total++
	}
}

// doesNotCompile has a condition that cannot be combined with others.
func doesNotCompile(f flag) string {
	if f {
		return "yes"
	}
	return "no"
}

// endless never ends without its break, and would not compile without the panic.
func endless(limit int) int {
	n := 0
	for ; ; n++ {
		if n == limit {
			break
		}
	}
	panic(n)
}
