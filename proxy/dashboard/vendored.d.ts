/** The few declarations that the page needs of the files in `static/vendor`. */

declare module "preact" {
  export type ComponentChildren = unknown;
  export interface VNode {
    type: unknown;
    props: object;
  }
  export function h(type: unknown, props: object | null, ...children: unknown[]): VNode;
  export function render(node: VNode, parent: Element): void;
  export const Fragment: (props: { children?: ComponentChildren }) => VNode;
}

declare module "preact/hooks" {
  export function useState<T>(initial: T | (() => T)): [T, (value: T | ((before: T) => T)) => void];
  export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
  export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
  export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
  export function useCallback<T extends (...values: never[]) => unknown>(call: T, inputs: readonly unknown[]): T;
  export function useRef<T>(initial: T): { current: T };
  export function useId(): string;
}

declare module "htm" {
  const htm: {
    bind<T>(h: (type: unknown, props: object | null, ...children: unknown[]) => T): (
      strings: TemplateStringsArray,
      ...values: unknown[]
    ) => T;
  };
  export default htm;
}

declare module "uplot" {
  export default class uPlot {
    constructor(options: object, data: unknown[], target: Element);
    setSize(size: { width: number; height: number }): void;
    destroy(): void;
  }
}
