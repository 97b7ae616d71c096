// Package costs guards the total costs of the library and a store: allocations, commands,
// goroutines and bytes, which do not depend on how fast a machine is. It has tests only. Time is
// measured by the bench module.
package costs
